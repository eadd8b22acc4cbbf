// SPDX-License-Identifier: GPL-2.0
/* The system: waiting, timers, locks, memory barriers. */

/* linux/module.h */

const char *rsmc_helper_module_name(void)
{
	return KBUILD_MODNAME;
}

bool rsmc_helper_keep_this_module(void)
{
	return try_module_get(THIS_MODULE);
}

void rsmc_helper_release_this_module(void)
{
	module_put(THIS_MODULE);
}

/* linux/task_work.h */

int rsmc_helper_task_work_add_current(struct callback_head *work, task_work_func_t func)
{
	init_task_work(work, func);
	return task_work_add(current, work, TWA_RESUME);
}

/* linux/rcupdate.h */

void rsmc_helper_wait_for_running_tasks(void)
{
	synchronize_rcu_tasks();
}

/* linux/sched/signal.h */

bool rsmc_helper_signal_pending_current(void)
{
	return signal_pending(current);
}

bool rsmc_helper_current_is_exiting(void)
{
	return current->flags & PF_EXITING;
}

/* linux/nsproxy.h, linux/sched.h */

struct net *rsmc_helper_current_net(void)
{
	return current->nsproxy->net_ns;
}

void rsmc_helper_current_comm(char *comm)
{
	memcpy(comm, current->comm, TASK_COMM_LEN);
}

/* linux/cred.h */

u32 rsmc_helper_current_euid_in(struct net *net)
{
	return from_kuid_munged(net->user_ns, current_euid());
}

/*
 * Who answers for what the current task takes: its real user. Within user namespaces the one who has made the outermost,
 * who may give it any number of users; one of root's, who makes them for others, counts by itself.
 */
u64 rsmc_helper_current_account(void)
{
	const struct user_namespace *ns = current_user_ns(), *outermost = NULL;

	for (; ns->parent; ns = ns->parent)
		outermost = ns;
	if (!outermost)
		return __kuid_val(current_uid());
	if (!uid_eq(outermost->owner, GLOBAL_ROOT_UID))
		return __kuid_val(outermost->owner);
	return (u64)outermost->ns.inum << 32;
}

/* linux/mm.h */

unsigned long rsmc_helper_memory_pages(void)
{
	return totalram_pages();
}

/* linux/fs.h, linux/mm_types.h */

struct file *rsmc_helper_current_exe_file(void)
{
	return current->mm ? get_file_rcu(&current->mm->exe_file) : NULL;
}

/* linux/cgroup.h */

int rsmc_helper_current_cgroup_path(char *path, size_t len)
{
#ifdef CONFIG_CGROUPS
	return cgroup_path(task_dfl_cgroup(current), path, len);
#else
	return 0;
#endif
}

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
/* linux/ftrace.h */

void rsmc_helper_ftrace_regs_set_ip(struct ftrace_regs *regs, unsigned long ip)
{
	ftrace_regs_set_instruction_pointer(regs, ip);
}
#endif

/* linux/wait.h, linux/list.h */

void rsmc_helper_init_wait_func(struct wait_queue_entry *entry, wait_queue_func_t func)
{
	init_waitqueue_func_entry(entry, func);
}

void rsmc_helper_list_del_init_helper(struct list_head *entry)
{
	list_del_init(entry);
}

/* linux/timer.h, linux/jiffies.h */

void rsmc_helper_timer_setup(struct timer_list *timer, void (*func)(struct timer_list *))
{
	timer_setup(timer, func, 0);
}

unsigned long rsmc_helper_jiffies_now(void)
{
	return jiffies;
}

/* linux/workqueue.h */

struct workqueue_struct *rsmc_helper_alloc_workqueue_unbound(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND, 0, name);
}

/* linux/spinlock.h */

void rsmc_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void rsmc_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

void rsmc_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void rsmc_helper_local_bh_enable(void)
{
	local_bh_enable();
}

int rsmc_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

/* linux/rcupdate.h */

void rsmc_helper_kfree_after_rcu(void *memory)
{
	kfree_rcu_mightsleep(memory);
}

/* asm/barrier.h: the names in the kernel crate differ by version */

void rsmc_helper_full_memory_barrier(void)
{
	/* The caller in Rust says what it pairs with. */
	smp_mb();
}

void rsmc_helper_read_memory_barrier(void)
{
	/* The caller in Rust says what it pairs with. */
	smp_rmb();
}

/* linux/smp.h, linux/cpumask.h */

unsigned int rsmc_helper_some_cpu(void)
{
	return raw_smp_processor_id();
}

unsigned int rsmc_helper_online_cpus(void)
{
	return num_online_cpus();
}

/* linux/sockptr.h */

int rsmc_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size)
{
	return copy_from_sockptr(dst, src, size);
}

/* linux/utsname.h */

void rsmc_helper_host_name(char *buf, size_t size)
{
	strscpy(buf, init_utsname()->nodename, size);
}

void rsmc_helper_task_host_name(char *buf, size_t size)
{
	struct nsproxy *spaces = current->nsproxy;

	strscpy(buf, spaces ? spaces->uts_ns->name.nodename : "", size);
}
