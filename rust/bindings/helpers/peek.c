// SPDX-License-Identifier: GPL-2.0
/*
 * In C, because no exported function does it under the socket lock: tcp_recvmsg() takes the lock itself,
 * and tcp_read_sock(), tcp_read_skb() and tcp_recv_skb() free the buffers that they have passed. What the
 * walk is made of are macros (skb_queue_walk(), TCP_SKB_CB()) over a list head in a union without a name,
 * which Rust would have to spell by generated names, with raw pointers all the same.
 */

/*
 * Copies what is at the head of the receive queue and leaves it there; returns how much that is, or
 * -EFAULT. The socket is locked.
 */
int rsmc_helper_tcp_peek(struct sock *sk, u32 seq, void *buf, int len)
{
	struct sk_buff *skb;
	int copied = 0;

	skb_queue_walk(&sk->sk_receive_queue, skb) {
		u32 offset = seq - TCP_SKB_CB(skb)->seq;
		int part;

		if (copied == len)
			break;
		if (offset >= skb->len)
			continue;
		part = min_t(u32, skb->len - offset, len - copied);
		if (skb_copy_bits(skb, offset, buf + copied, part))
			return -EFAULT;
		copied += part;
		seq += part;
	}
	return copied;
}

/* Copies bytes from @offset on, as above, to a message of recvmsg(). */
int rsmc_helper_tcp_peek_at(struct sock *sk, u32 offset, struct msghdr *msg, int len)
{
	u32 seq = tcp_sk(sk)->copied_seq + offset;
	struct sk_buff *skb;
	int copied = 0;

	skb_queue_walk(&sk->sk_receive_queue, skb) {
		u32 skip = seq - TCP_SKB_CB(skb)->seq;
		int part;

		if (copied == len)
			break;
		if (skip >= skb->len)
			continue;
		part = min_t(u32, skb->len - skip, len - copied);
		if (skb_copy_datagram_msg(skb, skip, msg, part))
			return copied ?: -EFAULT;
		copied += part;
		seq += part;
	}
	return copied;
}
