#!/bin/sh
# Before the package goes for good (dpkg: remove, rpm: 0), not before an upgrade (upgrade, 1).
case "${1:-}" in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl disable --now tandem.service || true
	fi
	;;
esac
