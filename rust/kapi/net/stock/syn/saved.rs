// SPDX-License-Identifier: GPL-2.0

//! The server's side: what the SYN said, from the copy that `TCP_SAVE_SYN` keeps.
//!
//! What was answered is noted in that copy, which goes from the request to the connection: in the acknowledgment
//! number, which has no meaning in a SYN (RFC 9293, section 3.1). So the connection is judged by what its client
//! was told, whatever has changed since; and a further SYN-ACK says what the first one did.

use super::{
    fields::ANSWER_MAX,
    header::{ACK_SEQ, FIXED, OPTIONS_MAX, SEQ},
    OptionBytes,
    Syn, //
};
use crate::{
    net::sock::{OwnedSock, Sock},
    sys::{clock, word::Count}, //
};
use core::slice;
use smc_bindings as bindings;

/// The note that nothing was answered; those of answers have their numbers in the lowest bits. Random, so that no peer
/// can write it; 0 until it is drawn.
static UNANSWERED: Count = Count::new(0);

/// Draws the notes. Called before there are hooks.
pub(super) fn draw_notes() {
    if UNANSWERED.get() == 0 {
        let mut word = [0; 4];
        clock::random(&mut word);
        let answers = u32::from(ANSWER_MAX);
        let note = u32::from_ne_bytes(word) & !answers;
        // If another CPU was first, its notes are as good.
        let note = note.max(answers.wrapping_add(1));
        UNANSWERED.replace(0, u64::from(note));
    }
}

/// Returns the note of an answer.
fn note(answer: u8) -> [u8; 4] {
    let answer = u32::from(answer.min(ANSWER_MAX));
    (UNANSWERED.get() as u32 | answer).to_ne_bytes()
}

/// Returns what the SYN was answered, if it says so.
fn noted(ack_seq: [u8; 4]) -> Option<u8> {
    let answer = u32::from_ne_bytes(ack_seq) ^ UNANSWERED.get() as u32;
    u8::try_from(answer)
        .ok()
        .filter(|answer| *answer <= ANSWER_MAX)
}

/// Keeps the SYNs of future connections of a listener, if they are `wanted`, which is asked with the
/// socket locked. One whose SYN was not kept gets no option in its SYN-ACK, either.
pub fn keep_syns(sock: &Sock, wanted: impl FnOnce() -> bool) {
    let guard = sock.lock();
    let wanted = wanted();
    // SAFETY: The socket is valid and locked.
    unsafe {
        let kept = bindings::tcp_save_syn(guard.sock().as_ptr()) != 0;
        if kept != wanted {
            bindings::tcp_set_save_syn(guard.sock().as_ptr(), u8::from(wanted));
        }
    }
}

/// Returns what the SYN that a connection came from was answered; see [`Policy::syn_ack`](super::Policy::syn_ack).
/// `answer_request` has noted that in the acknowledgment number of the saved SYN. That is 0 afterwards, as a program may
/// ask for the SYN: so only the first call is told.
///
/// It is 0 when the SYN was not kept: on a connection made with SYN cookies, for instance.
pub fn answer_to_saved_syn(sock: &mut OwnedSock) -> u8 {
    // SAFETY: The socket is valid.
    let saved = unsafe { bindings::tcp_saved_syn(sock.as_ptr()) };
    // SAFETY: Null, or a copy that is changed and freed by a program's call alone, or at the socket's end. The caller
    // has all of the socket, and no program has it.
    let parts = unsafe { saved_parts(saved) };
    let Some((ack_seq, _)) = parts else {
        return 0;
    };
    let answer = noted(*ack_seq);
    if answer.is_some() {
        // A program may ask for it.
        *ack_seq = [0; 4];
    }
    answer.unwrap_or(0)
}

/// Frees the copy of the SYN, for a user who did not ask for it.
///
/// # Safety
///
/// `sk` is a socket of TCP that is valid, and locked by the caller.
pub(in crate::net) unsafe fn drop_saved_syn(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise. TCP itself frees the copy under this lock, when a program has asked for it, and
    // BPF programs that read it have the socket locked, too.
    unsafe { bindings::tcp_saved_syn_free(sk.cast()) };
}

/// Returns the place of a saved SYN's acknowledgment number, and what it says.
///
/// # Safety
///
/// `saved` is null, or points to a saved SYN that lives during `'a`, in which nobody else writes.
unsafe fn saved_parts<'a>(saved: *mut bindings::saved_syn) -> Option<(&'a mut [u8; 4], Syn<'a>)> {
    if saved.is_null() {
        return None;
    }
    // SAFETY: The lengths are those with which TCP filled `data`. The two parts do not overlap.
    unsafe {
        let skip = ((*saved).mac_hdrlen as usize).checked_add((*saved).network_hdrlen as usize)?;
        let len = (*saved).tcp_hdrlen as usize;
        if !(FIXED..=FIXED + OPTIONS_MAX).contains(&len) {
            return None;
        }
        let data: *mut u8 = (&raw mut (*saved).data).cast();
        let tcp = data.add(skip);
        let syn = Syn {
            number: u32::from_be_bytes(tcp.add(SEQ).cast::<[u8; 4]>().read()),
            options: slice::from_raw_parts(tcp.add(FIXED), len - FIXED),
        };
        Some((&mut *tcp.add(ACK_SEQ).cast(), syn))
    }
}

/// Asks what to add to the SYN-ACK of a request, and notes the answer, as long as the request is one. `answer` gets
/// its SYN, and whether an earlier SYN-ACK had an option; it is not asked if one had none.
///
/// A SYN-ACK may be repeated (for a second SYN) while another CPU makes the request a connection, which
/// takes the copy of the SYN over, and a third closes the listener, which frees it at once. The
/// connection takes the place of the request in the hash first, under the lock of its bucket: so while
/// that is held and the request stands there, the copy is the request's. (A SYN-ACK that is sent later
/// goes without the option. That does no harm: the client has answered one.)
///
/// # Safety
///
/// `req` is a TCP request that lives during the call, and the caller holds no lock of the hash.
pub(super) unsafe fn answer_request(
    req: *mut bindings::request_sock,
    answer: impl FnOnce(Syn<'_>, bool) -> Option<(OptionBytes, u8)>,
) -> Option<OptionBytes> {
    // SAFETY: The request is alive. What takes one out of the hash does so under this lock.
    let lock = unsafe {
        let lock = bindings::reqsk_hash_lockp(req);
        bindings::spin_lock_bh(lock);
        lock
    };
    // SAFETY:
    // - The request is alive.
    // - While it is in the hash it owns its copy of the SYN, if it has one.
    // - Taking it out of the hash, and writing to the copy, need the lock that is held.
    let parts = unsafe {
        bindings::reqsk_is_hashed(req)
            .then(|| saved_parts((*req).saved_syn))
            .flatten()
    };
    let added = parts.and_then(|(ack_seq, syn)| match noted(*ack_seq) {
        Some(0) => None,
        Some(_) => answer(syn, true).map(|(added, _)| added),
        None => {
            let answer = answer(syn, false);
            *ack_seq = note(answer.map_or(0, |(_, answer)| answer));
            answer.map(|(added, _)| added)
        }
    });
    // SAFETY: Taken above.
    unsafe { bindings::spin_unlock_bh(lock) };
    added
}
