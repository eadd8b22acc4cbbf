// SPDX-License-Identifier: GPL-2.0
/*
 * Calls a callback of a sock under sk_callback_lock, which keeps it and the wait queue where they are.
 * In C, not in Rust over three helpers: a message that arrives wakes a reader, and this is one call from
 * Rust instead of three.
 */

void rsmc_helper_sk_state_change(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_state_change(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_data_ready(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_data_ready(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_report_error(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk_error_report(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

void rsmc_helper_sk_signal_urgent(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk_send_sigurg(sk);
	read_unlock_bh(&sk->sk_callback_lock);
}

/* As sk_stream_write_space(), whatever room TCP has: it is the room of another buffer. */
void rsmc_helper_sk_tell_room(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	if (wq && wq->fasync_list && !(sk->sk_shutdown & SEND_SHUTDOWN))
		sock_wake_async(wq, SOCK_WAKE_SPACE, POLL_OUT);
	rcu_read_unlock();
}

/*
 * Wakes who sleeps in recvmsg(), and does not look at the key, but no poller: epoll, poll(), select() and io_uring
 * do, and nobody waits for EPOLLMSG, which TCP never reports.
 */
void rsmc_helper_sk_tell_sleepers(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_sync_poll(&wq->wait, EPOLLMSG);
	rcu_read_unlock();
}

/* As sock_def_readable(), for bytes that are in another buffer than TCP's. */
void rsmc_helper_sk_tell_data(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_sync_poll(&wq->wait, EPOLLIN | EPOLLPRI | EPOLLRDNORM |
						EPOLLRDBAND);
	sk_wake_async_rcu(sk, SOCK_WAKE_WAITD, POLL_IN);
	rcu_read_unlock();
}

bool rsmc_helper_waitqueue_active_helper(struct wait_queue_head *head)
{
	/* A hint: who begins to wait at this moment may be missed. */
	return waitqueue_active(head);
}
