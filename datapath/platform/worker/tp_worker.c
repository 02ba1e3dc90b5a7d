/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
#include "tp_worker.h"

/* Builds, narrowest first: tp_burst.c, each compiled for itself. */
#define BUILDS(BUILD) BUILD(PLAIN) BUILD(COMMON) BUILD(RELAY) BUILD(GENERAL)

#define DECLARE(build)                                                                                               \
	void tp_burst_##build(struct tp_worker *w, const struct tp_port_config *port, struct tp_frame *frames, __u32 n, \
			      __u64 now_ns);
BUILDS(DECLARE)

void tp_worker_burst(struct tp_worker *w, __u32 port, struct tp_frame *frames, __u32 n, __u64 now_ns)
{
	struct tp_port_config config = w->ports[port];

	if (w->wheel) {
		w->left_ns = tp_wheel_left_ns(w->wheel);
		w->room = tp_wheel_room(w->wheel);
	}
	config.features = __atomic_load_n(w->features, __ATOMIC_ACQUIRE);
#define RUN_IF_ENOUGH(build)                                              \
	if (!(config.features & ~TP_BUILD_##build)) {                     \
		tp_burst_##build(w, &config, frames, n, now_ns);          \
		return;                                                   \
	}
	BUILDS(RUN_IF_ENOUGH)
	tp_burst_GENERAL(w, &config, frames, n, now_ns); /* not met: it has all there are */
}
