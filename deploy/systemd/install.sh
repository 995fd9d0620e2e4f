#!/bin/sh
# Installs vllm-watch as a service of this host, or upgrades it. As root, in a clone: sh deploy/systemd/install.sh [URL]
# URL is a webhook to which incidents are sent; a configuration that is there stays as it is. docs/install/bare-metal.md
set -eu
cd "$(dirname "$0")/../.."
config=/etc/vllm-watch/vllm-watch.yaml

python3 -m venv /opt/vllm-watch
/opt/vllm-watch/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-host.lock
/opt/vllm-watch/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .

install -D -m 644 deploy/systemd/vllm-watch.sysusers /usr/lib/sysusers.d/vllm-watch.conf
systemd-sysusers
install -d -m 750 -g vllm-watch /etc/vllm-watch
if [ ! -e "$config" ]; then
    install -m 640 -g vllm-watch deploy/systemd/vllm-watch.yaml "$config"
    [ $# -eq 0 ] || printf 'state_dir: /var/lib/vllm-watch\nnotifications:\n  webhook:\n    - name: oncall\n      url: "%s"\n' "$1" >> "$config"
fi
/opt/vllm-watch/bin/vllm-watch check-config "$config"

units=/etc/systemd/system
install -D -m 644 -t "$units" deploy/systemd/vllm-watch.service
install -D -m 644 -t "$units/vllm-watch.service.d" deploy/systemd/vllm-watch.service.d/10-gpus.conf deploy/systemd/vllm-watch.service.d/20-processes.conf
systemctl daemon-reload
systemctl enable --quiet vllm-watch
systemctl restart vllm-watch
echo "The page: http://127.0.0.1:9470/"
