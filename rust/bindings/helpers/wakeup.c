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

void rsmc_helper_sk_write_space(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
	sk->sk_write_space(sk);
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
