#!/bin/sh
# usage: tools/deps.sh [build|test|browser|monitoring|vllm|release]
# Installs missing system packages. If it cannot, it prints what to install by hand. Every target gets libzmq and a C compiler. Further:
#   test        Python's ZeroMQ bindings (an independent peer for the wire tests); Valkey or Redis (for tests of the shared answer cache)
#   browser     Chromium, for the tests of the live page
#   monitoring  Prometheus, for the tests of the dashboard and the alerts
#   vllm        Python 3.11 with venv and headers; a C++ compiler, because vLLM compiles its CPU kernels at run time; libibverbs, which
#               Mooncake loads even for TCP
#   release     tools of make release and make release-check: Python 3 with venv, curl, patch, CA certificates, rpm, and an emulator of arm64
#               on other processors; if apt is present also debootstrap and ip, to install the package into a bare Debian without a network
set -eu
PATH=$PATH:/usr/sbin:/sbin # for debootstrap and ip: the PATH of an ordinary user may lack these folders
want=${1:-build}

have_zmq() {
	printf '#include <zmq.h>\nint main(void){return zmq_has("curve")<0;}\n' >"$tmp/t.c" &&
		${CC:-cc} "$tmp/t.c" -o "$tmp/t" -lzmq 2>/dev/null
}
have_python() { /usr/bin/python3 -c 'import zmq, msgpack' 2>/dev/null; }
have_valkey() { command -v valkey-server >/dev/null 2>&1 || command -v redis-server >/dev/null 2>&1; }
have_venv() {
	for python in "${PYTHON:-python3.11}" "${PYTHON:-python3}"; do
		"$python" -c 'import os, sys, sysconfig, venv, ensurepip
h = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(sys.version_info[:2] != (3, 11) or not os.path.exists(h))' 2>/dev/null && return
	done
	return 1
}

have_verbs() { ldconfig -p 2>/dev/null | grep -q 'libibverbs\.so\.1'; }

have_release() {
	"${PYTHON:-python3}" -c 'import venv, ensurepip' 2>/dev/null && command -v curl >/dev/null && command -v patch >/dev/null &&
		command -v rpm >/dev/null && [ -s /etc/ssl/certs/ca-certificates.crt ] && { [ "$(uname -m)" = aarch64 ] || command -v qemu-aarch64-static >/dev/null; } &&
		{ ! command -v apt-get >/dev/null || { command -v debootstrap >/dev/null && command -v ip >/dev/null; }; }
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

missing=
command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing compiler"
have_zmq || missing="$missing libzmq"
[ "$want" != test ] || have_python || missing="$missing python-zmq"
[ "$want" != test ] || have_valkey || missing="$missing valkey-server"
[ "$want" != browser ] || command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
[ "$want" != monitoring ] || command -v prometheus >/dev/null 2>&1 || missing="$missing prometheus"
[ "$want" != vllm ] || command -v "${CXX:-c++}" >/dev/null 2>&1 || missing="$missing c++"
[ "$want" != vllm ] || have_venv || missing="$missing python3.11-with-venv-and-headers"
[ "$want" != vllm ] || have_verbs || missing="$missing libibverbs"
[ "$want" != release ] || have_release || missing="$missing release-tools"
[ -n "$missing" ] || exit 0

by_hand() {
	cat >&2 <<EOF
tandem needs:$missing. They could not be installed here: $1.
Install them by hand, then run make again:
  Debian, Ubuntu:  apt-get install gcc libzmq3-dev pkg-config python3-zmq python3-msgpack redis-server
  Fedora:          dnf install gcc zeromq-devel pkgconf python3-pyzmq python3-msgpack valkey
  Alpine:          apk add gcc musl-dev zeromq-dev pkgconf py3-pyzmq py3-msgpack valkey
  macOS:           brew install zeromq pkg-config valkey && python3 -m pip install pyzmq msgpack
make test-monitoring (dashboard and alerts) also needs prometheus.
make test-page (the live page) also needs chromium.
make e2e-vllm (real vLLM, Linux only) also needs g++, libibverbs and Python 3.11 with venv and headers. PYTHON can name another interpreter:
  Debian 12, or an Ubuntu with Python 3.11:  apt-get install g++ libibverbs1 python3.11 python3.11-venv python3.11-dev
  Fedora:                                    dnf install gcc-c++ libibverbs python3.11 python3.11-devel
make release (Linux only) also needs:
  Debian, Ubuntu:  apt-get install python3-venv curl patch ca-certificates rpm qemu-user-static debootstrap iproute2
  Fedora:          dnf install python3 curl patch ca-certificates rpm qemu-user-static
EOF
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1; then sudo "$@"; else by_hand "not root and no sudo"; fi
}

echo "installing:$missing" >&2
if command -v apt-get >/dev/null 2>&1; then
	packages="gcc libc6-dev libzmq3-dev pkg-config"
	[ "$want" != test ] || packages="$packages python3 python3-zmq python3-msgpack"
	[ "$want" != test ] || have_valkey || packages="$packages redis-server"
	[ "$want" != browser ] || packages="$packages chromium fonts-dejavu-core"
	[ "$want" != monitoring ] || packages="$packages prometheus"
	[ "$want" != vllm ] || packages="$packages g++ libibverbs1"
	[ "$want" != vllm ] || have_venv || packages="$packages python3.11 python3.11-venv python3.11-dev"
	[ "$want" != release ] || packages="$packages python3 python3-venv curl patch ca-certificates rpm qemu-user-static debootstrap iproute2"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 || by_hand "apt-get update failed"
	# shellcheck disable=SC2086
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >"$tmp/log" 2>&1 ||
		{ tail -n 20 "$tmp/log" >&2; by_hand "apt-get install failed"; }
elif command -v dnf >/dev/null 2>&1; then
	packages="gcc zeromq-devel pkgconf python3-pyzmq python3-msgpack"
	[ "$want" != test ] || packages="$packages valkey"
	[ "$want" != browser ] || packages="$packages chromium"
	[ "$want" != vllm ] || packages="$packages gcc-c++ libibverbs python3.11 python3.11-devel"
	[ "$want" != release ] || packages="$packages python3 curl patch ca-certificates rpm qemu-user-static"
	# shellcheck disable=SC2086
	as_root dnf install -y -q $packages >&2 || by_hand "dnf failed"
elif command -v apk >/dev/null 2>&1; then
	packages="gcc musl-dev zeromq-dev pkgconf py3-pyzmq py3-msgpack"
	[ "$want" != test ] || packages="$packages valkey"
	# shellcheck disable=SC2086
	as_root apk add -q $packages >&2 || by_hand "apk failed"
elif command -v brew >/dev/null 2>&1; then
	packages="zeromq pkg-config"
	[ "$want" != test ] || packages="$packages valkey"
	# shellcheck disable=SC2086
	brew install -q $packages >&2 || by_hand "brew failed"
else
	by_hand "no known package manager"
fi
[ "$want" != monitoring ] || command -v prometheus >/dev/null 2>&1 || by_hand "prometheus is still missing after the installation"
[ "$want" != browser ] || command -v chromium >/dev/null 2>&1 || by_hand "chromium is still missing after the installation"
have_zmq || by_hand "libzmq is still missing after the installation"
[ "$want" != vllm ] || have_venv || by_hand "Python 3.11 with venv and headers is still missing after the installation"
[ "$want" != vllm ] || have_verbs || by_hand "libibverbs is still missing after the installation"
[ "$want" != release ] || have_release || by_hand "a release tool is still missing after the installation"
[ "$want" != test ] || have_valkey || by_hand "valkey-server and redis-server are still missing after the installation"
[ "$want" != test ] || have_python || by_hand "Python's zmq and msgpack are still missing after the installation"
