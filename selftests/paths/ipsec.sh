#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Connections that IPsec protects stay on TCP: RDMA would bypass IPsec and send the bytes in the clear. The
# policies do not cover RoCE's packets, so it is the module that keeps SMC away.
. "$RSMC_SELFTESTS/lib.sh"

A=10.77.0.1 B=10.77.0.2
KEYS="enc cbc(aes) 0x000102030405060708090a0b0c0d0e0f auth hmac(sha256) 0x$(printf '%064d' 7)"

states() {
	for end in a b; do
		for way in "$A $B 0x1001" "$B $A 0x1002"; do
			# shellcheck disable=SC2086
			set -- $way $KEYS
			ns "$end" ip xfrm state add src "$1" dst "$2" proto esp spi "$3" mode transport \
				"$4" "$5" "$6" "$7" "$8" "$9" || return
		done
	done
}

# policy END FROM TO in|out LEVEL
policy() {
	ns "$1" ip xfrm policy add src "$2" dst "$3" proto tcp dir "$4" \
		tmpl src "$2" dst "$3" proto esp mode transport level "$5"
}

transfers() { stress --mode "$1" --bulk 1 --short 3 short bulk; }

# fell_back END DIRECTIONS: all connections fell back, END names IPsec as the reason and says what to do, and
# DIRECTIONS directions have carried protected packets.
fell_back() {
	case $1 in
	a) name=client ;;
	b) name=server ;;
	esac
	check "$name.transfer" transfers 1
	rows=$(ns "$1" cat /proc/net/smc_fallback)
	case $rows in
	*"reason $name 0x03020000 "*) ok "$name.reason" ;;
	*) not_ok "$name.reason" "$rows" ;;
	esac
	case $(ns "$1" rsmc why) in
	*"Exclude these hosts from IPsec"*) ok "$name.why" ;;
	*) not_ok "$name.why" "$(ns "$1" rsmc why)" ;;
	esac
	is "$name.ways" "$(ns b ip -s xfrm state | grep -c ' [1-9][0-9]*(packets)')" "$2"
	for end in a b; do ns "$end" ip xfrm policy flush; ns "$end" ip xfrm state flush; done
}

ktap_plan 10
check before transfers 0
states
policy a $A $B out required && policy a $B $A in required &&
	policy b $B $A out required && policy b $A $B in required
fell_back a 2
# Only what the server sends is protected.
states
policy b $B $A out required
fell_back b 1
check after transfers 0
ktap_exit
