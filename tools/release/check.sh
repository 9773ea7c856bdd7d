#!/bin/sh
# Tests the results of make release as a user would use them: checksums, binaries, both packages in empty roots, the .deb in a bare Debian, the systemd
# unit's command, and the file systems of the images. Needs root for chroot. Leaves nothing behind.
set -eu
PATH=$PATH:/usr/sbin:/sbin
cd "$(dirname "$0")/../.."
out=$PWD/build/release
[ "$(id -u)" = 0 ] || { echo "make release-check needs root, because it installs the packages with chroot" >&2; exit 1; }
step() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

if [ -z "${TANDEM_CHECK:-}" ]; then # once with the network, for Debian's packages, and then without it
	work=$(mktemp -d)
	trap 'rm -rf --one-file-system "$work"' EXIT
	step "a bare Debian 12"
	if debootstrap --variant=minbase bookworm "$work/debian" >"$work/log" 2>&1; then
		du -sh "$work/debian" | cut -f 1
	else
		umount "$work/debian/proc" "$work/debian/sys" 2>/dev/null || true
		rm -rf --one-file-system "$work/debian"
		echo "debootstrap failed: $(tail -n 1 "$work/log"). The .deb is tested in an empty root only."
	fi
	# In the namespace without the network go cannot download the module of minisign. So minisign is compiled here.
	go tool -modfile=tools/nfpm.mod minisign -v
	# The ports of the shipped configuration may be in use on this machine. In a new network namespace they are free.
	if unshare -n ip link set lo up 2>/dev/null; then
		TANDEM_CHECK=$work unshare -n sh -c 'ip link set lo up && exec sh tools/release/check.sh'
	else
		TANDEM_CHECK=$work sh tools/release/check.sh
	fi
	exit
fi
work=$TANDEM_CHECK

# quickstart COMMAND... runs the quickstart with this command as tandem: engines, events over ZeroMQ, a handoff, a stream, a decision.
quickstart() {
	printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$work/tandem"
	chmod +x "$work/tandem"
	TANDEM=$work/tandem TMPDIR=${shared:-$work} sh examples/quickstart/run.sh >"$work/log" 2>&1 || { cat "$work/log"; fail "the quickstart with $*"; }
	echo "the quickstart succeeds with: $*"
}

# lives ROOT PROGRAM ARGS... runs a program with ROOT as its file system until it serves, and stops it. There are no engines.
lives() {
	root=$1
	shift
	chroot --userspec=65532:65532 "$root" "$@" >"$work/log" 2>&1 &
	pid=$!
	tries=0
	until curl -fs http://127.0.0.1:9091/healthz >/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] && kill -0 $pid 2>/dev/null || { cat "$work/log"; fail "$* in $root does not serve"; }
		sleep 0.1
	done
	kill $pid
	wait $pid || fail "$* ended with exit code $?"
	echo "serves, and stops cleanly: $*"
}

# unpack ARCH unpacks the file system of the image for ARCH into $work/root-ARCH.
unpack() {
	mkdir -p "$work/image-$1" "$work/root-$1"
	tar -xf "$out"/*_linux_"$1".image.tar -C "$work/image-$1"
	tar -xzf "$work/image-$1/$(sed 's/.*"Layers":\["\([^"]*\)".*/\1/' "$work/image-$1/manifest.json")" -C "$work/root-$1"
	[ -s "$work/root-$1/etc/ssl/certs/ca-certificates.crt" ] || fail "the image has no CA certificates"
	cp deploy/packages/tandem.yaml "$work/root-$1/etc/tandem/tandem.yaml"
}

step "checksums"
(cd "$out" && sha256sum --quiet -c SHA256SUMS)

step "the signature of the checksums, with a temporary key"
minisign() { go tool -modfile=tools/nfpm.mod minisign "$@"; }
minisign -G -W -s "$work/key" -p "$work/key.pub" >/dev/null
make -s sign KEY="$work/key" SIGN=-W </dev/null >/dev/null
minisign -V -p "$work/key.pub" -m "$out/SHA256SUMS"
cp "$out/SHA256SUMS" "$work/SHA256SUMS" && mv "$out/SHA256SUMS.minisig" "$work/" && echo >>"$work/SHA256SUMS"
minisign -V -q -p "$work/key.pub" -m "$work/SHA256SUMS" >/dev/null 2>&1 && fail "minisign accepts a changed file"

case $(uname -m) in x86_64) here=amd64 ;; aarch64) here=arm64 ;; *) fail "there is no binary for $(uname -m)" ;; esac
for binary in "$out"/tandem_linux_amd64 "$out"/tandem_linux_arm64; do
	[ -e "$binary" ] || continue
	arch=${binary##*_}
	step "$arch: static, and works"
	LC_ALL=C readelf -lh "$binary" >"$work/elf"
	case $arch in amd64) machine=X86-64 cpu=x86_64 ;; arm64) machine=AArch64 cpu=aarch64 ;; esac
	grep -q "Machine: .*$machine" "$work/elf" || fail "$binary is for $(grep Machine: "$work/elf")"
	grep -q INTERP "$work/elf" && fail "$binary is not static: it needs an interpreter"
	if [ "$arch" = "$here" ]; then
		case $(ldd "$binary" 2>&1) in *"not a dynamic executable"* | *"statically linked"*) ;; *) fail "$binary is not static: $(ldd "$binary")" ;; esac
		"$binary" --version
		quickstart "$binary"
	else
		qemu-aarch64-static "$binary" --version
		qemu-aarch64-static "$binary" check deploy/packages/tandem.yaml >/dev/null || fail "tandem check refuses the shipped configuration on $arch"
		qemu-aarch64-static "$binary" demo --requests 2 --concurrency 1 | tail -n 8 | tee "$work/demo"
		grep -q '2 requests, 0 wrong' "$work/demo" || fail "the demo fails on $arch"
	fi
	grep -q '"name": "libzmq"' "$binary.cdx.json" || fail "the bill of materials of $arch has no libzmq"
	[ "$(grep -c '"purl": "pkg:golang/' "$binary.cdx.json")" -gt 20 ] || fail "the bill of materials of $arch has few modules"
	[ "$(dpkg-deb -f "$out"/*_"$arch".deb Architecture)" = "$arch" ] || fail "the .deb of $arch"
	[ "$(rpm -qp --qf '%{ARCH}' "$out"/*_"$arch".rpm)" = "$cpu" ] || fail "the .rpm of $arch"
done

deb=$(ls "$out"/*_$here.deb)
rpm=$(ls "$out"/*_$here.rpm)

step "the .deb, installed into an empty root"
mkdir -p "$work/deb/var/lib/dpkg/info" "$work/deb/var/lib/dpkg/updates" "$work/deb/tmp"
touch "$work/deb/var/lib/dpkg/status"
dpkg --root="$work/deb" --force-script-chrootless -i "$deb" >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg"; }
unit=$work/deb/usr/lib/systemd/system/tandem.service
command=$(sed -n 's/^ExecStart=//p' "$unit")
sed -i 's/^listen: .*/listen: "127.0.0.1:8000"/' "$work/deb/etc/tandem/tandem.yaml" # as a user would do
# shellcheck disable=SC2086
lives "$work/deb" $command
for page in man1/tandem.1 man1/tandem-serve.1 man1/tandem-replay-capture.1 man5/tandem.yaml.5; do
	gzip -dc "$work/deb/usr/share/man/$page.gz" >"$work/page" || fail "no man page $page"
	grep -q '^\.SH NAME' "$work/page" || fail "$page has no NAME"
	! command -v groff >/dev/null || [ -z "$(groff -man -t -Tutf8 -ww "$work/page" 2>&1 >/dev/null | grep -i error)" ] || fail "$page does not format"
done
[ -s "$work/deb/usr/share/doc/tandem/runbook.md" ] || fail "the runbook is not in the package"
case $(dpkg-deb -f "$deb" Maintainer) in *@localhost* | "") fail "the .deb has no maintainer" ;; esac
chroot "$work/deb" /usr/bin/tandem check /etc/tandem/tandem.yaml >/dev/null || fail "tandem check refuses the shipped configuration"
dpkg --root="$work/deb" --force-script-chrootless -i "$deb" >"$work/log" 2>&1
grep -q 127.0.0.1:8000 "$work/deb/etc/tandem/tandem.yaml" || fail "an upgrade has overwritten the configuration"
if command -v systemd-analyze >/dev/null; then
	mkdir -p "$work/deb/bin" && cp /bin/sh "$work/deb/bin/kill" # systemd only checks that it exists
	systemd-analyze security --offline=true --threshold=18 "$unit" >"$work/log" 2>&1 || { tail -n 1 "$work/log"; fail "the unit is less restricted than before"; }
	systemd-analyze verify --root="$work/deb" tandem.service 2>&1 | grep -E 'tandem.service:[0-9]+:|not executable' && fail "systemd-analyze verify reports errors in the unit"
fi
dpkg --root="$work/deb" --force-script-chrootless --purge tandem >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg --purge"; }
[ ! -e "$work/deb/usr/bin/tandem" ] && [ ! -e "$work/deb/etc/tandem/tandem.yaml" ] || fail "dpkg --purge left files behind"

step "the .rpm, installed into an empty root"
rpm --root "$work/rpm" --dbpath /var/lib/rpm --nodeps --noscripts --ignorearch -i "$rpm"
# shellcheck disable=SC2086
lives "$work/rpm" $command

if [ -d "$work/debian" ]; then
	step "the .deb on a bare Debian: install, edit one file, start with the unit's command"
	cp "$deb" "$work/debian/tandem.deb"
	SINCE=$(date +%s%3N)
	chroot "$work/debian" dpkg -i /tandem.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg"; }
	grep -q 'tandem doctor --config' "$work/log" || fail "the installation does not print the next steps"
	# shellcheck disable=SC2086
	TANDEM=$out/tandem_linux_$here SINCE=$SINCE sh tools/release/first-token.sh "$work/debian" $command
	chroot "$work/debian" dpkg --purge tandem >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg --purge"; }
fi

step "the image: unpack, edit one file, start with the image's command"
SINCE=$(date +%s%3N)
unpack $here
TANDEM=$out/tandem_linux_$here SINCE=$SINCE sh tools/release/first-token.sh "$work/root-$here" /usr/bin/tandem serve --config /etc/tandem/tandem.yaml
shared=$work/root-$here/tmp
quickstart sh tools/release/in-root.sh "$work/root-$here"
cat "$work/image-$here"/blobs/sha256/* | grep -q '"User":"65532:65532"' || fail "the image does not run as user 65532"

if [ "$here" = amd64 ] && [ -e "$out/tandem_linux_arm64" ]; then
	step "the arm64 image, under an emulator"
	SINCE=$(date +%s%3N)
	unpack arm64
	cp "$(command -v qemu-aarch64-static)" "$work/root-arm64/qemu"
	TANDEM=$out/tandem_linux_$here SINCE=$SINCE sh tools/release/first-token.sh "$work/root-arm64" /qemu /usr/bin/tandem serve --config /etc/tandem/tandem.yaml
fi

step "the image for all processors: every blob matches its digest"
mkdir "$work/all"
tar -xf "$out"/*_linux.image.tar -C "$work/all"
(cd "$work/all/blobs/sha256" && for blob in *; do [ "$(sha256sum <"$blob" | cut -d ' ' -f 1)" = "$blob" ] || fail "blob $blob"; done)
for platform in "$out"/*_linux_*.image.tar; do
	tar -xOf "$platform" index.json | sed 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/' | while read -r one; do
		[ -e "$work/all/blobs/sha256/$one" ] || fail "the image for $platform is missing"
	done
done

step "everything passed: $(ls "$out" | wc -l) files in build/release"
