// SPDX-License-Identifier: GPL-2.0

//! Two hosts that shake hands.
