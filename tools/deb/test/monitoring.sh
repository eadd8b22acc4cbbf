#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# monitoring.sh
# tools/monitoring (in /run/monitoring) with Debian's Prometheus and node_exporter, on what
# rsmc wrote in a guest: /run/metrics/first.prom, second.prom after a connection became TCP.
set -eu
directory=/var/lib/prometheus/node-exporter
server=http://127.0.0.1:9090/api/v1

fail() {
	echo "# $*"
	tail -n 5 /tmp/exporter.log /tmp/prometheus.log 2>/dev/null || :
	exit 1
}

# ask PATH [NAME=VALUE...]: the data of an answer.
ask() {
	path=$1
	shift
	for word in "$@"; do
		set -- "$@" --data-urlencode "$word"
		shift
	done
	curl -sG "$@" "$server/$path" >/tmp/answer || fail "$path: no answer"
	jq -e 'select(.status == "success").data' /tmp/answer || fail "$path $*: $(cat /tmp/answer)"
}

# until_is EXPRESSION: waits until a query has a result.
until_is() {
	for _ in $(seq 300); do
		[ "$(ask query "query=$1" | jq '.result | length')" = 0 ] || return 0
		sleep 0.2
	done
	fail "never true: $1"
}

# firing: the names of the alerts that are.
firing() {
	ask alerts | jq -r '.alerts[] | select(.state == "firing").labels.alertname' | sort -u | paste -sd' '
}
until_firing() {
	for _ in $(seq 300); do
		[ "$(firing)" != "$1" ] || return 0
		sleep 0.2
	done
	fail "instead of '$1': '$(firing)'"
}

ip link set lo up
promtool check rules /run/monitoring/alerts.yml >/tmp/log 2>&1 || fail "$(cat /tmp/log)"
promtool test rules /run/monitoring/alerts_test.yml >/tmp/log 2>&1 || fail "$(cat /tmp/log)"

mkdir -p "$directory" /tmp/prometheus
cp /run/metrics/first.prom "$directory/rsmc.prom"
prometheus-node-exporter --web.listen-address=127.0.0.1:9100 --collector.disable-defaults \
	--collector.textfile --collector.textfile.directory="$directory" >/tmp/exporter.log 2>&1 &
exporter=$!
# The rules as they are, but for the time that each must hold.
sed 's/^\( *for: \)[0-9]*m$/\11s/' /run/monitoring/alerts.yml >/tmp/prometheus/rsmc.yml
cat >/tmp/prometheus/prometheus.yml <<-END
	global: {scrape_interval: 1s, evaluation_interval: 1s}
	rule_files: [rsmc.yml]
	scrape_configs:
	  - job_name: node
	    static_configs: [{targets: ["127.0.0.1:9100"]}]
END
prometheus --config.file=/tmp/prometheus/prometheus.yml --storage.tsdb.path=/tmp/prometheus/data \
	--web.listen-address=127.0.0.1:9090 >/tmp/prometheus.log 2>&1 &
prometheus=$!
trap 'kill "$exporter" "$prometheus"' EXIT
for _ in $(seq 300); do
	! curl -sf "http://127.0.0.1:9090/-/ready" >/dev/null || break
	sleep 0.2
done
until_is 'count_over_time(smc_fallbacks_total{role="client"}[1m]) >= 3'
until_is 'node_textfile_scrape_error == 0'
echo "# $(ask query 'query={__name__=~"smc_.*"}' | jq '.result | length') series of rsmc's; alerts: $(firing)"
until_firing ''

cp /run/metrics/second.prom "$directory/rsmc.prom"
until_firing SmcEverythingFallsBack
touch -d '-10 minutes' "$directory/rsmc.prom"
until_firing 'SmcEverythingFallsBack SmcMetricsOld'
ask alerts | jq -r '.alerts[].annotations.summary' | sed 's/^/# fires: /'

# Grafana puts these in the place of the dashboard's variables.
jq -r '.panels[].targets[]?.expr' /run/monitoring/grafana.json |
	sed 's/\$__rate_interval/5m/g; s/\$instance/.*/g' >/tmp/queries
end=$(date +%s)
while read -r query; do
	case $query in *'$'*) fail "a variable without a value: $query" ;; esac
	count=$(ask query "query=$query" | jq '.result | length')
	[ "$count" != 0 ] || fail "nothing to show for $query"
	count=$(ask query_range "query=$query" "start=$((end - 10))" "end=$end" step=1 | jq '.result | length')
	[ "$count" != 0 ] || fail "no graph of $query"
done </tmp/queries
[ "$(wc -l </tmp/queries)" -gt 5 ] || fail "the dashboard has no queries"
[ "$(ask label/instance/values 'match[]=smc_fallbacks_total' | jq -r '.[]')" = 127.0.0.1:9100 ] || fail "hosts: $(cat /tmp/answer)"
echo "# all $(wc -l </tmp/queries) queries of the dashboard have values"
