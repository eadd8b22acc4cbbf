// SPDX-License-Identifier: GPL-2.0
/* Memory regions: what a driver does for them. The hardware reads them in engine.c. */
#include <linux/slab.h>
#include "card.h"

static struct card_region *card_region_new(struct card_device *device, u32 pages)
{
	struct card_region *region = kzalloc(sizeof(*region), GFP_KERNEL);
	int error;

	if (!region)
		return ERR_PTR(-ENOMEM);
	if (pages) {
		region->page = kvcalloc(pages, sizeof(u64), GFP_KERNEL);
		if (!region->page) {
			kfree(region);
			return ERR_PTR(-ENOMEM);
		}
	}
	region->capacity = pages;
	error = xa_alloc_cyclic(&device->regions, &region->index, region, XA_LIMIT(2, 0xffffff),
				&device->next_region, GFP_KERNEL);
	if (error < 0) {
		kvfree(region->page);
		kfree(region);
		return ERR_PTR(error);
	}
	region->key = region->index << 8;
	region->ib.lkey = region->key;
	region->ib.rkey = region->key;
	return region;
}

struct ib_mr *card_get_dma_mr(struct ib_pd *pd, int access)
{
	struct card_region *region = card_region_new(to_device(pd->device), 0);

	if (IS_ERR(region))
		return ERR_CAST(region);
	region->everything = true;
	region->access = access;
	region->valid = true;
	return &region->ib;
}

/* The core asks for it, but nobody can call it: the device has no user contexts. */
struct ib_mr *card_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 address, int access,
			       struct ib_dmah *dmah, struct ib_udata *udata)
{
	return ERR_PTR(-EOPNOTSUPP);
}

struct ib_mr *card_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 pages)
{
	struct card_device *device = to_device(pd->device);
	struct card_region *region;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!pages || pages > device->profile.region_pages)
		return ERR_PTR(-EINVAL);
	region = card_region_new(device, pages);
	return IS_ERR(region) ? ERR_CAST(region) : &region->ib;
}

static int card_set_page(struct ib_mr *mr, u64 address)
{
	struct card_region *region = to_region(mr);

	if (region->pages == region->capacity)
		return -ENOMEM;
	region->page[region->pages++] = address;
	return 0;
}

int card_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int nents, unsigned int *offset)
{
	struct card_device *device = to_device(mr->device);

	/* A card that does not have the size would take pages for smaller ones. */
	if (!(device->profile.page_sizes & mr->page_size))
		return -EINVAL;
	to_region(mr)->pages = 0;
	return ib_sg_to_pages(mr, sg, nents, offset, card_set_page);
}

int card_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	struct card_region *region = to_region(mr);
	unsigned long flags;

	xa_erase(&to_device(mr->device)->regions, region->index);
	/* Requests look regions up and use them under hw_wire: none has this one after that. */
	raw_spin_lock_irqsave(&hw_wire, flags);
	region->valid = false;
	raw_spin_unlock_irqrestore(&hw_wire, flags);
	kvfree(region->page);
	kfree(region);
	return 0;
}
