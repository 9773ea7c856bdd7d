#!/bin/sh
# Stops the service before the package is removed (dpkg passes remove, rpm passes 0), but not before an upgrade (upgrade, 1).
case "${1:-}" in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl disable --now tandem.service || true
	fi
	;;
esac
