#!/bin/sh
# Makes systemd read the unit. After the first installation (dpkg passes no old version, rpm passes 1) it prints the next steps. An upgrade restarts nothing.
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
case "${1:-} ${2:-}" in
"configure " | "1 ")
	cat <<'EOF'
tandem is installed. Next:
  1. put your engines into /etc/tandem/tandem.yaml   (man 5 tandem.yaml)
  2. tandem doctor --config /etc/tandem/tandem.yaml  (checks the engines and names wrong flags)
  3. systemctl enable --now tandem                   (if something fails: /usr/share/doc/tandem/runbook.md)
EOF
	;;
esac
