// SPDX-License-Identifier: GPL-2.0

//! Any sequence of CDC messages and immediates against a connection that also sends, reads and
//! closes: no panic, consistent bookkeeping, errors change nothing, FREE at most once.
//!
//! First byte: ring sizes. Then an operation byte, for a message followed by its 26 bytes,
//! for an immediate by its 4.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smc_proto::conn::*;
use smc_proto::cursor::RingSize;
use smc_proto::time::{Instant, Span};
use smc_proto::wire::cdc::{Cdc, CONTENT_LEN, LEN};
use smc_proto::wire::ids::AlertToken;
use smc_proto::wire::immediate::Immediate;

fuzz_target!(|data: &[u8]| {
    let Some((&sizes, mut rest)) = data.split_first() else {
        return;
    };
    let size = |n: u8| RingSize::new(1 << (n & 15)).unwrap();
    let mut conn = Conn::new(Params {
        token: AlertToken(1),
        recv: size(sizes),
        send: size(sizes >> 4),
        recv_most: size(15),
        send_most: size(15),
        autocork: 64,
        drain_idle: Span::from_secs(3),
    });
    let mut now = Instant(1);
    let mut freed = 0;
    let mut tickets = Vec::new();
    while let Some((&op, tail)) = rest.split_first() {
        rest = tail;
        let actions = match op % 16 {
            0..=4 => {
                // Most say nothing of rings.
                let len = if op & 0x20 == 0 { CONTENT_LEN } else { LEN };
                let n = len.min(rest.len());
                let mut bytes = [0; LEN];
                bytes[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                if op & 0x10 == 0 {
                    let [_, _, a, b, ..] = bytes;
                    bytes[..8].copy_from_slice(&[0xfe, 44, a, b, 0, 0, 0, 1]);
                }
                let Ok(cdc) = Cdc::parse(&bytes) else {
                    continue;
                };
                assert_eq!(Cdc::parse(&cdc.encode()), Ok(cdc));
                let (before, state) = (conn.positions(), conn.state());
                conn.on_cdc(&cdc, now).unwrap_or_else(|_| {
                    assert_eq!((conn.positions(), conn.state()), (before, state));
                    conn.fail()
                })
            }
            5 => {
                let Some((bytes, tail)) = rest.split_first_chunk::<4>() else {
                    break;
                };
                rest = tail;
                let imm = Immediate::from_wire(match op & 0x10 {
                    0 => u32::from_be_bytes([0, 1, bytes[2], bytes[3]]),
                    _ => u32::from_be_bytes(*bytes),
                });
                let (before, state) = (conn.positions(), conn.state());
                conn.on_immediate(imm, now).unwrap_or_else(|_| {
                    assert_eq!((conn.positions(), conn.state()), (before, state));
                    conn.fail()
                })
            }
            6 => {
                conn.set_peer(Peer {
                    token: AlertToken(2),
                    ring: size(op >> 4),
                    place: Place::default(),
                    immediate: rest.first().is_some_and(|byte| byte & 1 == 1),
                    moves: rest.first().is_some_and(|byte| byte & 2 == 2),
                });
                conn.expose();
                conn.establish(now).unwrap_or(Actions::NONE)
            }
            7 | 8 => {
                let hint = SendHint {
                    more: op & 0x20 != 0,
                    urgent: op & 0x40 != 0,
                    push: op & 0x80 != 0,
                };
                let room = conn.send_room().unwrap_or(0);
                let n = room.min(u32::from(op >> 4) * 7);
                conn.written(n, hint, now).unwrap_or(Actions::NONE)
            }
            9 => {
                let view = conn.recv_view(0);
                let n = view.skip + view.pieces.len().min(u32::from(op >> 4) * 11);
                conn.read_done(n).expect("what the view shows can be read")
            }
            10 => match conn.take_tx(now) {
                Some(tx) => {
                    tickets.push(tx.ticket);
                    tx.actions
                }
                None => Actions::NONE,
            },
            11 if !tickets.is_empty() => conn.on_tx_done(tickets.remove(0), now),
            12 => {
                now = now.after(Span::from_millis(u64::from(op >> 4) * 100));
                conn.on_timer(now)
            }
            13 => match op >> 4 {
                0..=3 => conn.shutdown_write(now),
                4..=6 => conn.shutdown_both(now),
                7..=9 => conn.close(CloseMode::Graceful, now),
                10 => conn.close(CloseMode::Abort, now),
                11 => conn.kill(),
                12 => conn.on_tcp_dead(),
                13 => conn.on_tcp_fin(now),
                _ => conn.set_oob_inline(op & 0x10 != 0),
            },
            14 => match conn.urgent_offset() {
                Some(_) => conn.store_urgent(op),
                None if op & 0x10 == 0 => Actions::NONE,
                None => {
                    let offered = conn.offer_ring(size(14 | op >> 5), Place::default());
                    offered.map_or(Actions::NONE, |(_, actions)| actions)
                }
            },
            _ => {
                let _ = conn.take_urgent(op & 0x10 != 0);
                conn.push()
            }
        };
        freed += u32::from(actions.has(Actions::FREE));
        assert!(freed <= 1);
        assert!(conn.is_consistent());
    }
    // Whatever happened, closing and losing the link ends it.
    let mut end = conn.close(CloseMode::Graceful, now) | conn.kill();
    for ticket in tickets {
        end |= conn.on_tx_done(ticket, now);
    }
    freed += u32::from(end.has(Actions::FREE));
    assert_eq!((freed, conn.state()), (1, ConnState::Closed));
});
