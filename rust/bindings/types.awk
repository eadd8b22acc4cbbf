# SPDX-License-Identifier: GPL-2.0
# Prints the names of the structs, unions and aliases which a bindgen output
# defines completely (an incomplete struct has one empty `_unused` member).
/^pub (struct|union) / {
	name = $3
	sub(/[^A-Za-z0-9_].*/, "", name)
	if ($0 ~ /\(/) next
	getline body
	if (body !~ /_unused: \[u8; 0/ && name !~ /^__(Bindgen|Incomplete)/) print name
}
