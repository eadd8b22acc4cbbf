// SPDX-License-Identifier: GPL-2.0
/*
 * A page of a program's memory that is not there for as long as the test likes, as one of a file system that
 * does not answer, or of userfaultfd(2): `/proc/slow_page`. What is written to an open file is what its page
 * holds. Who touches the page, which mmap() gives, sleeps until an ioctl() of any number lets it go, or until it
 * is killed. read() gives an int: how many sleep there now.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

struct slow_page {
	struct page *page;
	atomic_t sleepers;
	bool ready;
	wait_queue_head_t wait;
};

static int slow_open(struct inode *inode, struct file *file)
{
	struct slow_page *slow = kzalloc(sizeof(*slow), GFP_KERNEL);

	if (!slow)
		return -ENOMEM;
	slow->page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!slow->page) {
		kfree(slow);
		return -ENOMEM;
	}
	init_waitqueue_head(&slow->wait);
	file->private_data = slow;
	return 0;
}

static int slow_release(struct inode *inode, struct file *file)
{
	struct slow_page *slow = file->private_data;

	put_page(slow->page);
	kfree(slow);
	return 0;
}

static ssize_t slow_read(struct file *file, char __user *to, size_t len, loff_t *pos)
{
	struct slow_page *slow = file->private_data;
	int sleepers = atomic_read(&slow->sleepers);

	if (len < sizeof(sleepers))
		return -EINVAL;
	return copy_to_user(to, &sleepers, sizeof(sleepers)) ? -EFAULT : sizeof(sleepers);
}

static ssize_t slow_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct slow_page *slow = file->private_data;

	if (len > PAGE_SIZE)
		return -EINVAL;
	return copy_from_user(page_address(slow->page), from, len) ? -EFAULT : len;
}

static long slow_ioctl(struct file *file, unsigned int command, unsigned long arg)
{
	struct slow_page *slow = file->private_data;

	WRITE_ONCE(slow->ready, true);
	wake_up_all(&slow->wait);
	return 0;
}

/* As for a page of a file that is read, the other threads of the program can map memory meanwhile. */
static vm_fault_t slow_fault(struct vm_fault *vmf)
{
	struct file *file = vmf->vma->vm_file;
	struct slow_page *slow = file->private_data;

	if (!READ_ONCE(slow->ready)) {
		if (!(vmf->flags & FAULT_FLAG_ALLOW_RETRY) || vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
			return VM_FAULT_SIGBUS;
		get_file(file);
		release_fault_lock(vmf);
		atomic_inc(&slow->sleepers);
		wait_event_killable(slow->wait, READ_ONCE(slow->ready));
		atomic_dec(&slow->sleepers);
		fput(file);
		return VM_FAULT_RETRY;
	}
	get_page(slow->page);
	vmf->page = slow->page;
	return 0;
}

static const struct vm_operations_struct slow_vm_ops = {
	.fault = slow_fault,
};

static int slow_mmap(struct file *file, struct vm_area_struct *vma)
{
	vma->vm_ops = &slow_vm_ops;
	return 0;
}

static const struct proc_ops slow_ops = {
	.proc_open = slow_open,
	.proc_release = slow_release,
	.proc_read = slow_read,
	.proc_write = slow_write,
	.proc_ioctl = slow_ioctl,
	.proc_mmap = slow_mmap,
};

static int __init slow_init(void)
{
	return proc_create("slow_page", 0600, NULL, &slow_ops) ? 0 : -ENOMEM;
}
module_init(slow_init);

static void __exit slow_exit(void)
{
	remove_proc_entry("slow_page", NULL);
}
module_exit(slow_exit);

MODULE_DESCRIPTION("A page that is not there for as long as a test likes");
MODULE_LICENSE("GPL");
