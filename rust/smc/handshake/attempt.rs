// SPDX-License-Identifier: GPL-2.0

//! Resources that a handshake has taken for its connection; dropping them gives everything back.

use super::{
    gates::{Entry, Gate, Gates},
    group_limits::admits,
    subnets, //
};
use crate::{
    host::{
        clock::now,
        namespace::Namespace,
        peer_addr::PeerAddr,
        stats::{Buffer, TrafficDirection},
        waiter::Waiter, //
    }, //
    smcr::{
        group::{charged_bytes, Parts, RING_MAX},
        Lane,
        LinkGroup,
        LocalPort,
        PeerFacts,
        SmcConn, //
    }, //
};
use kapi::{
    net::sock::{Charge, Sock},
    rdma::route::NextHop, //
};
use kernel::{
    prelude::*,
    sync::{aref::ARef, Arc}, //
};
use smc_proto::{
    cursor::RingSize,
    group::{EndReason, Terms},
    handshake::{region, server, Acquired, Want},
    llc::{
        link::{LinkEnd, Role},
        responder::LlcEvent, //
    },
    reason::Reason,
    time::{Instant, Span},
    wire::{
        bufsize::BufSize,
        clc::{proposal::Prefixes, RdmaEnd, V1},
        ids::{AlertToken, Mtu, Psn, Qpn},
        llc::Frame, //
    }, //
};

/// Number of times that a server looks for another group when the last place of one has just been
/// taken.
const JOIN_TRIES: u32 = 10;

/// A place in a group: the group, and the connection's token and index there.
type Place = (Arc<LinkGroup>, (AlertToken, u8));

/// The first link of a group, as it is begun.
#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    /// Next hop to the peer.
    hop: NextHop,
    /// The largest path MTU that our port and the route to the peer allow.
    mtu: Mtu,
}

/// The resources of one connection that is being made.
pub(crate) struct Attempt {
    gates: Arc<Gates>,
    /// That of version 2, until version 1 is spoken.
    port: Option<LocalPort>,
    /// At a client: that of version 1, if that was offered.
    v1_port: Option<LocalPort>,
    /// Socket whose control group is charged with the rings, if not the connection's.
    payer: Option<ARef<Sock>>,
    /// At a client: the lane that it has chosen.
    lane: Option<Lane>,
    /// True if the connection's socket goes on with TCP for the present.
    apart: bool,
    group: Option<Arc<LinkGroup>>,
    /// Place in the group, held while that gets memory for the connection.
    place: Option<(AlertToken, u8)>,
    conn: Option<Arc<SmcConn>>,
    /// The link that this handshake has begun, if it has started the group.
    begun: Option<Begun>,
    // Dropped last: the handshakes that wait for it look for a finished group.
    gate: Option<Gate>,
}

impl Attempt {
    /// Creates an attempt that holds nothing yet.
    pub(crate) fn new(
        gates: Arc<Gates>,
        port: Option<LocalPort>,
        payer: Option<ARef<Sock>>,
        lane: Option<Lane>,
    ) -> Self {
        Self {
            gates,
            port,
            v1_port: None,
            payer,
            lane,
            apart: false,
            group: None,
            place: None,
            conn: None,
            begun: None,
            gate: None,
        }
    }

    /// Makes a connection for a socket that goes on with TCP for the present.
    pub(crate) fn set_apart(&mut self) {
        self.apart = true;
    }

    /// Notes the port that was offered for version 1.
    pub(crate) fn offers_v1(&mut self, port: LocalPort) {
        self.v1_port = Some(port);
    }

    /// Has a server's connection be of version 1; `client` are the subnets of its client.
    ///
    /// # Errors
    ///
    /// The reason to decline: as C's, and in its order.
    pub(crate) fn take_v1(&mut self, sock: &Sock, client: &Prefixes) -> Result<(), Reason> {
        // Whoever promotes connections has version 2.
        if self.apart {
            return Err(Reason::NoV2Extension);
        }
        if !subnets::has_common(sock, client) {
            return Err(Reason::PrefixMismatch);
        }
        let port = self.port.as_ref().and_then(|port| port.v1(sock));
        self.port = Some(port.ok_or(Reason::NoDevice)?);
        Ok(())
    }

    /// Finds or starts the group, and makes our end of the connection in it. Returns `None` if that
    /// has to wait for another handshake, or until the group has memory, at whose end the waiter is kicked.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// The reason to decline.
    pub(crate) fn acquire(
        &mut self,
        want: &Want,
        sock: &ARef<Sock>,
        peer: Option<&RdmaEnd>,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Option<Acquired>, Reason> {
        if want.key.version == V1 && self.v1_port.is_some() {
            self.port = self.v1_port.take();
        }
        let port = self.port.clone().ok_or(Reason::NoDevice)?;
        let (group, place) = match (self.group.clone(), self.place.take()) {
            (Some(group), Some(place)) => (group, place),
            _ => match self.enter(want, &port, sock, waiter)? {
                Some(entered) => entered,
                None => return Ok(None),
            },
        };
        self.group = Some(group.clone());
        let conn = match self.make_conn(&group, place, sock, waiter) {
            Ok(Some(conn)) => conn,
            Ok(None) => {
                self.place = Some(place);
                return Ok(None);
            }
            Err(reason) => {
                if self.conn.is_none() {
                    group.unreserve(place.0);
                }
                return Err(reason);
            }
        };
        if let Some(peer) = peer {
            self.set_peer(&conn, &group, peer)?;
            if let Some(begun) = &self.begun {
                let near = want.key.role == Role::Client && !begun.hop.gateway;
                if near && !want.direct {
                    return Err(Reason::NoIndirect);
                }
                let mtu = begun.mtu.min(peer.mtu);
                group
                    .to_rtr(end_of(peer), peer.psn.get(), mtu, &begun.hop)
                    .map_err(|_| Reason::ReadyLinkError)?;
                group.await_events(waiter(), 0);
            }
        }
        let (qpn, psn) = group.link.queue_pair();
        let announced = conn.announce().ok_or(Reason::Internal)?;
        Ok(Some(Acquired {
            end: RdmaEnd {
                peer_id: self.gates.registry().peer_id,
                gid: port.gid,
                mac: port.mac,
                qpn: Qpn::new(qpn),
                psn: Psn::new(psn),
                mtu: self.begun.map_or(port.mtu, |begun| begun.mtu),
                ..announced
            },
            first_contact: self.begun.is_some(),
            direct: self.begun.is_some_and(|begun| !begun.hop.gateway),
        }))
    }

    /// Finds or starts the group, and takes a place in it. Returns `None` if that has to wait for another
    /// handshake. Sleeps.
    fn enter(
        &mut self,
        want: &Want,
        port: &LocalPort,
        sock: &ARef<Sock>,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Option<Place>, Reason> {
        let mut tries = 0u32;
        let peer_addr = PeerAddr::of(sock);
        loop {
            let group = match want.key.role {
                Role::Server if self.is_kept_off(want, port, peer_addr, sock) => {
                    return Err(Reason::LinkFailed)
                }
                Role::Server => match self.gates.enter(&want.key, port, peer_addr, waiter) {
                    Ok(Entry::Busy) => return Ok(None),
                    Ok(Entry::Join(group)) => group,
                    Ok(Entry::First(gate)) => {
                        self.gate = Some(gate);
                        self.start_group(want, port, peer_addr, sock)?
                    }
                    Err(_) => return Err(Reason::NoMemory),
                },
                Role::Client if want.first_contact == Some(true) => {
                    self.start_group(want, port, peer_addr, sock)?
                }
                Role::Client => {
                    let link = want.link.ok_or(Reason::SyncError)?;
                    self.gates
                        .registry()
                        .client_group(&want.key, &link, port, peer_addr)?
                }
            };
            match group.reserve() {
                Some(place) => return Ok(Some((group, place))),
                // Another handshake has taken the last place since the check.
                None if want.key.role == Role::Server
                    && self.begun.is_none()
                    && tries < JOIN_TRIES =>
                {
                    tries = tries.saturating_add(1);
                }
                None => {
                    self.group = Some(group);
                    return Err(Reason::Internal);
                }
            }
        }
    }

    /// Tells whether a server's connection would begin a link with a peer to which those failed before. A group that is
    /// there shows that RDMA gets through, so it is joined.
    fn is_kept_off(&self, want: &Want, port: &LocalPort, peer_addr: PeerAddr, sock: &Sock) -> bool {
        let registry = self.gates.registry();
        Namespace::of(sock).is_some_and(|namespace| {
            !namespace.peer_cache.is_empty()
                && registry.server_group(&want.key, port, peer_addr).is_none()
                && namespace.keeps_links_off(sock)
        })
    }

    fn start_group(
        &mut self,
        want: &Want,
        port: &LocalPort,
        peer_addr: PeerAddr,
        sock: &Sock,
    ) -> Result<Arc<LinkGroup>, Reason> {
        if !admits(self.gates.registry(), peer_addr) {
            return Err(Reason::NoMemory);
        }
        let hop = port
            .hop_to(sock, &want.key.peer_gid, want.key.peer_mac)
            .map_err(|_| Reason::NoRoute)?;
        // It is there as long as its sockets are.
        let namespace = Namespace::of(sock).ok_or(Reason::NoMemory)?;
        let terms = Terms {
            key: want.key,
            release: want.release,
            max_conns: want.max_conns,
            max_links: want.max_links,
            test_idle: Span::from_secs(namespace.testlink_seconds()),
            extensions: want.extensions,
        };
        let registry = self.gates.registry();
        let id = registry.next_group_id();
        let group = LinkGroup::new(
            registry.clone(),
            id,
            self.lane,
            port,
            peer_addr,
            terms,
            namespace.queues(),
        )
        .map_err(|_| Reason::NoMemory)?;
        self.begun = Some(Begun {
            at: now(),
            hop,
            mtu: port.mtu.min(hop_mtu(&hop)),
        });
        if registry.add_group(&group).is_err() {
            group.end(EndReason::Local);
            return Err(Reason::NoMemory);
        }
        Ok(group)
    }

    /// Makes the connection that takes a reserved place of the group. Returns `None` while the group gets
    /// memory for it. Sleeps. On failure the place is still taken unless `self.conn` has it.
    fn make_conn(
        &mut self,
        group: &Arc<LinkGroup>,
        (token, index): (AlertToken, u8),
        sock: &ARef<Sock>,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result<Option<Arc<SmcConn>>, Reason> {
        let namespace = Namespace::of(sock);
        // It is there as long as its sockets are.
        let namespace = namespace.ok_or(Reason::NoMemory)?;
        let (rmem, wmem, autocork) = namespace.buffers();
        let (wanted_recv, wanted_send) = (sock.wanted_receive_buffer(), sock.wanted_send_buffer());
        let recv_size = ring_size(wanted_recv, rmem)?;
        let send_size = ring_size(wanted_send, wmem)?;
        let (rmem_max, wmem_max) = namespace.most_buffers();
        let most = (
            ring_size(wanted_recv, rmem_max)?,
            ring_size(wanted_send, wmem_max)?,
        );
        // For both rings from the beginning: what is refused here is a fallback, later a wait.
        let bytes = charged_bytes(recv_size.bytes() as usize, send_size.bytes() as usize);
        let charge = Charge::new(self.payer.as_deref().unwrap_or(sock), bytes)
            .map_err(|_| Reason::NoMemory)?;
        let lease = group
            .lease(recv_size, waiter)
            .map_err(|_| Reason::RegisterBufferError)?;
        let Some(lease) = lease else {
            return Ok(None);
        };
        let buffer = if lease.is_used() {
            Buffer::Reused
        } else {
            Buffer::Allocated
        };
        let conn = SmcConn::new(Parts {
            group: group.clone(),
            index,
            token,
            sock: sock.clone(),
            lease,
            charge,
            most,
            send_size,
            autocork,
            drain_idle: namespace.drain_idle(),
            apart: self.apart,
        });
        let conn = conn.map_err(|_| Reason::NoMemory)?;
        let stats = conn.stats();
        stats.buffer_size(TrafficDirection::Rx, recv_size.bytes() as usize);
        stats.usage(TrafficDirection::Rx, i64::from(recv_size.bytes()));
        stats.buffer(TrafficDirection::Rx, buffer);
        let known = group.insert_conn(&conn);
        self.conn = Some(conn.clone());
        known.map_err(|_| Reason::NoActiveLink)?;
        Ok(Some(conn))
    }

    fn set_peer(&self, conn: &SmcConn, group: &LinkGroup, peer: &RdmaEnd) -> Result<(), Reason> {
        if !group.add_peer_region(region(peer)) {
            return Err(Reason::RtokenError);
        }
        conn.set_peer(peer).map_err(|_| Reason::Internal)
    }

    /// Tells whether this handshake has started the group.
    pub(crate) fn is_first_contact(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns for how long there has been the group that this handshake has started, if it has.
    pub(crate) fn first_contact_took(&self) -> Option<Span> {
        self.begun.map(|begun| now().since(begun.at))
    }

    /// Tells whether the port has failed since the group was begun. Sleeps.
    pub(crate) fn has_port_failed(&self) -> bool {
        self.group
            .as_ref()
            .is_some_and(|group| group.has_port_failed())
    }

    /// Tells whether there is a group to be given back, so that dropping this may sleep.
    pub(crate) fn holds_group(&self) -> bool {
        self.group.is_some() || self.gate.is_some()
    }

    /// Takes over the client's end from its CLC confirm, on the server; after first contact also
    /// connects the queue pair. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub(crate) fn adopt(
        &self,
        first: bool,
        mtu: Mtu,
        sock: &Sock,
        peer: &RdmaEnd,
        waiter: &dyn Fn() -> Arc<dyn Waiter>,
    ) -> Result {
        let (Some(conn), Some(group), Some(port)) = (&self.conn, &self.group, &self.port) else {
            return Err(EINVAL);
        };
        self.set_peer(conn, group, peer).map_err(|_| EINVAL)?;
        if first {
            let hop = port.hop_to(sock, &peer.gid, peer.mac)?;
            let mtu = mtu.min(hop_mtu(&hop));
            group.to_rtr(end_of(peer), peer.psn.get(), mtu, &hop)?;
            group.await_events(waiter(), server::FIRST_LINK);
            group.to_rts()?;
        }
        Ok(())
    }

    /// Notes that a message that names our buffer goes out.
    pub(crate) fn expose(&self) {
        if let Some(conn) = &self.conn {
            conn.expose();
        }
    }

    /// Notes that the peer has declined.
    pub(crate) fn declined(&self) {
        if let Some(conn) = &self.conn {
            conn.peer_declined();
        }
    }

    /// Lets the queue pair send (RTS), and registers the memory keys. Sleeps.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub(crate) fn to_rts(&self) -> Result {
        let group = self.group.as_ref().ok_or(EINVAL)?;
        if !group.is_server() {
            // The peer has asked over the link for the answer that is sent now.
            self.gates.registry().supersede(group);
        }
        group.to_rts()
    }

    /// Sends an LLC message of the handshake, with `full` in a packet of the path MTU.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` when the link is lost.
    pub(crate) fn send_llc(&self, frame: Frame, full: bool) -> Result {
        let group = self.group.as_ref().ok_or(EINVAL)?;
        if group.is_lost() {
            return Err(kapi::errno::ENOTCONN.into());
        }
        match full {
            true => group.send_full_llc(frame),
            false => group.send_llc(frame),
        }
        if group.is_lost() {
            return Err(kapi::errno::ENOTCONN.into());
        }
        Ok(())
    }

    /// Takes the next LLC event of the link that is being set up.
    pub(crate) fn take_event(&self) -> Option<LlcEvent> {
        self.group.as_ref()?.take_event()
    }

    /// Tells whether the link is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_lost())
    }

    /// Ends the group, which the peer does not know.
    pub(crate) fn out_of_sync(&self) {
        if let Some(group) = &self.group {
            group.end(EndReason::OutOfSync);
        }
    }

    /// Opens the connection after a successful handshake; after first contact also the link,
    /// numbered `link`, with what is known of the peer.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED`, `ENOMEM`.
    pub(crate) fn commit(mut self, link: u8, peer: PeerFacts) -> Result<Arc<SmcConn>> {
        let conn = self.conn.clone().ok_or(EINVAL)?;
        if self.begun.is_some() {
            if let Some(group) = &self.group {
                group.ignore_events();
                if group.is_server() {
                    self.gates.registry().supersede(group);
                }
                group.confirmed(link, peer);
            }
        }
        conn.establish()?;
        self.conn = None;
        self.group = None;
        Ok(conn)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            let send = conn.group().remove_conn(&conn);
            conn.retire(send);
        }
        if let Some(group) = self.group.take() {
            if let Some((token, _)) = self.place.take() {
                group.unreserve(token);
            }
            if self.begun.is_some() {
                group.ignore_events();
                group.end(EndReason::Local);
            }
        }
    }
}

/// Returns the largest path MTU that the route to the peer allows.
fn hop_mtu(hop: &NextHop) -> Mtu {
    Mtu::from_code(hop.mtu)
}

fn end_of(peer: &RdmaEnd) -> LinkEnd {
    LinkEnd {
        qpn: peer.qpn,
        gid: peer.gid,
        mac: peer.mac,
    }
}

/// Returns the size of a ring: `user`, SO_RCVBUF or SO_SNDBUF as TCP stores it, doubled; else the
/// administrator's `default`, in bytes.
fn ring_size(user: Option<usize>, default: u32) -> Result<RingSize, Reason> {
    let bytes = match user {
        Some(bytes) => u32::try_from(bytes / 2).unwrap_or(u32::MAX),
        None => default,
    };
    let size = BufSize::at_least(bytes.min(RING_MAX), BufSize::MAX_R);
    RingSize::from_code(size.code()).ok_or(Reason::Internal)
}
