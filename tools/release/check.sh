#!/bin/sh
# Tries what make release has made, as people would use it: checksums, the binaries, both packages installed into empty roots, the unit's command line,
# and the image's file system. Needs root, for chroot.
set -eu
cd "$(dirname "$0")/../.."
out=$PWD/build/release
[ "$(id -u)" = 0 ] || { echo "make release-check needs root: it runs what it has installed in a root of its own" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# quickstart WORDS... holds the program that these words run to the quickstart: engines, events over ZeroMQ, a handoff, a stream, a decision.
quickstart() {
	printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$work/tandem"
	chmod +x "$work/tandem"
	TANDEM=$work/tandem TMPDIR=${shared:-$work} sh examples/quickstart/run.sh >"$work/log" 2>&1 || { cat "$work/log"; fail "the quickstart by $*"; }
	echo "the quickstart ends well by: $*"
}

# lives ROOT PROGRAM ARGS... runs a program in a root of its own, with its configuration there, until it serves. Engines: none.
lives() {
	root=$1
	shift
	chroot --userspec=65532:65532 "$root" "$@" >"$work/log" 2>&1 &
	pid=$!
	tries=0
	until curl -fs http://127.0.0.1:9090/healthz >/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] && kill -0 $pid 2>/dev/null || { cat "$work/log"; fail "$* in $root does not serve"; }
		sleep 0.1
	done
	kill $pid
	wait $pid || fail "$* ends with $?"
	echo "serves, and ends well: $*"
}

step "checksums"
(cd "$out" && sha256sum --quiet -c SHA256SUMS)

case $(uname -m) in x86_64) here=amd64 ;; aarch64) here=arm64 ;; *) fail "no binary is for $(uname -m)" ;; esac
for binary in "$out"/tandem_linux_amd64 "$out"/tandem_linux_arm64; do
	[ -e "$binary" ] || continue
	arch=${binary##*_}
	step "$arch: static, and works"
	if [ "$arch" = "$here" ]; then
		case $(ldd "$binary" 2>&1) in *"not a dynamic executable"* | *"statically linked"*) ;; *) fail "$binary is not static: $(ldd "$binary")" ;; esac
		"$binary" --version
		quickstart "$binary"
	else
		qemu-aarch64-static "$binary" --version
		qemu-aarch64-static "$binary" demo --requests 2 --concurrency 1 | tail -n 8 | tee "$work/demo"
		grep -q '2 requests, 0 wrong' "$work/demo" || fail "the demo of $arch"
	fi
	grep -q '"name": "libzmq"' "$binary.cdx.json" || fail "the bill of materials of $arch has no libzmq"
	[ "$(grep -c '"purl": "pkg:golang/' "$binary.cdx.json")" -gt 20 ] || fail "the bill of materials of $arch has few modules"
done

deb=$(ls "$out"/*_$here.deb)
rpm=$(ls "$out"/*_$here.rpm)

step "the .deb, installed into an empty root"
mkdir -p "$work/deb/var/lib/dpkg/info" "$work/deb/var/lib/dpkg/updates" "$work/deb/tmp"
touch "$work/deb/var/lib/dpkg/status"
dpkg --root="$work/deb" --force-script-chrootless -i "$deb" >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg"; }
unit=$work/deb/usr/lib/systemd/system/tandem.service
command=$(sed -n 's/^ExecStart=//p' "$unit")
sed -i 's/^listen: .*/listen: "127.0.0.1:8000"/' "$work/deb/etc/tandem/tandem.yaml" # as somebody who edits one file
# shellcheck disable=SC2086
lives "$work/deb" $command
chroot "$work/deb" /usr/bin/tandem check /etc/tandem/tandem.yaml >/dev/null || fail "the shipped configuration"
dpkg --root="$work/deb" --force-script-chrootless -i "$deb" >"$work/log" 2>&1
grep -q 127.0.0.1:8000 "$work/deb/etc/tandem/tandem.yaml" || fail "an upgrade has written over the configuration"
if command -v systemd-analyze >/dev/null; then
	mkdir -p "$work/deb/bin" && cp /bin/sh "$work/deb/bin/kill" # it is only looked for
	systemd-analyze verify --root="$work/deb" tandem.service 2>&1 | grep -E 'tandem.service:[0-9]+:|not executable' && fail "systemd does not like the unit"
fi
dpkg --root="$work/deb" --force-script-chrootless --purge tandem >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg --purge"; }
[ ! -e "$work/deb/usr/bin/tandem" ] && [ ! -e "$work/deb/etc/tandem/tandem.yaml" ] || fail "something is left behind"

step "the .rpm, installed into an empty root"
rpm --root "$work/rpm" --dbpath /var/lib/rpm --nodeps --noscripts --ignorearch -i "$rpm"
# shellcheck disable=SC2086
lives "$work/rpm" $command

step "the image's file system"
mkdir -p "$work/image" "$work/root"
tar -xf "$out"/*_linux_$here.image.tar -C "$work/image"
tar -xzf "$work/image/$(sed 's/.*"Layers":\["\([^"]*\)".*/\1/' "$work/image/manifest.json")" -C "$work/root"
[ -s "$work/root/etc/ssl/certs/ca-certificates.crt" ] || fail "the image trusts nobody"
cp deploy/packages/tandem.yaml "$work/root/etc/tandem/tandem.yaml"
lives "$work/root" /usr/bin/tandem serve --config /etc/tandem/tandem.yaml
shared=$work/root/tmp
quickstart sh tools/release/in-root.sh "$work/root"

step "all of it is well: $(ls "$out" | wc -l) files in build/release"
