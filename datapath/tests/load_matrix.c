/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Load the XDP objects with every set of features that is ever asked for, and all roles: the verifier must take them all.
 * usage: load_matrix OBJECT..., smallest first: a set is that of the first object that is built for it. Exits 1 when
 * one was refused, or there is no object for it. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tp_abi.h"

static char verifier_log[1 << 16];

static int print_nothing(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

/* Where a constant of an object stands before it is loaded; NULL: there is none of that name. */
static __u32 *constant_at(struct bpf_object *object, const char *name)
{
	struct btf *btf = bpf_object__btf(object);
	int section = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC), i;
	const struct btf_type *type = btf__type_by_id(btf, (__u32)section);
	const struct btf_var_secinfo *variable = type ? btf_var_secinfos(type) : NULL;
	struct bpf_map *map;
	size_t size;
	char *data;

	bpf_object__for_each_map(map, object)
		if (strstr(bpf_map__name(map), ".rodata"))
			break;
	data = map ? (char *)bpf_map__initial_value(map, &size) : NULL;
	for (i = 0; data && type && i < btf_vlen(type); i++, variable++) {
		const struct btf_type *t = btf__type_by_id(btf, variable->type);

		if (!strcmp(btf__name_by_offset(btf, t->name_off), name))
			return (__u32 *)(data + variable->offset);
	}
	return NULL;
}

static int set_constant(struct bpf_object *object, const char *name, __u32 value)
{
	__u32 *constant = constant_at(object, name);

	if (constant)
		*constant = value;
	return !constant;
}

/* The features that an object is built for; 0: none that can be read. */
static __u32 built_for(const char *path)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	const __u32 *built = object ? constant_at(object, "tp_built") : NULL;
	__u32 features = built ? *built : 0;

	bpf_object__close(object);
	return features;
}

/* Instructions the verifier walked, or -1. */
static int load(const char *path, __u32 features, __u32 roles, __u32 part)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	struct bpf_program *program = object ? bpf_object__find_program_by_name(object, "turnpike") : NULL;
	const char *walked;
	int n = -1;

	if (!program)
		return -1;
	verifier_log[0] = 0;
	bpf_program__set_log_buf(program, verifier_log, sizeof(verifier_log));
	bpf_program__set_log_level(program, 4);
	if (!set_constant(object, "tp_features", features) && !set_constant(object, "tp_roles", roles) &&
	    !set_constant(object, "tp_spread", part) && !set_constant(object, "tp_lanes", part ? 2 : 0) &&
	    !bpf_object__load(object)) {
		walked = strstr(verifier_log, "processed ");
		n = walked ? atoi(walked + strlen("processed ")) : 0;
	}
	bpf_object__close(object);
	return n;
}

/* Is this a set that programs are built for? As Features::is_possible() of crates/tables/src/abi.rs: tagged frames
 * and idle UEs are always served, whoever needs a rare feature gets all common ones, and who follows packets or needs
 * plain UDP gets all. */
static int is_possible(__u32 features)
{
	__u32 common = TP_FEAT_METER | TP_FEAT_EXT | TP_FEAT_LIST | TP_FEAT_IPV6 | TP_FEAT_BUCKETS;
	__u32 general = TP_FEAT_ALL & ~(TP_FEAT_ATOMIC | TP_FEAT_OUTER6);
	__u32 rare = (TP_FEAT_ALL & ~0xffU & ~TP_FEAT_BUFFER) | TP_FEAT_FIB;
	__u32 always = TP_FEAT_VLAN | TP_FEAT_BUFFER;

	if ((features & ~(TP_FEAT_ALL | TP_FEAT_TRACE)) || (features & always) != always)
		return 0;
	if ((features & (TP_FEAT_TRACE | TP_FEAT_UDP)) && (features & general) != general)
		return 0;
	return !(features & rare) || (features & common) == common;
}

#define OBJECTS_MAX 8

static const char *paths[OBJECTS_MAX + 1]; /* NULL: no more */
static __u32 built[OBJECTS_MAX];

/* The first object that is built for these features; NULL: none is. */
static const char *object_for(__u32 features)
{
	int i;

	for (i = 0; paths[i]; i++)
		if ((built[i] & features) == features)
			return paths[i];
	return NULL;
}

/* Load one set, as each part of a port. The most instructions walked, or -1. */
static int load_parts(__u32 features, __u32 roles)
{
	/* Of a port that is spread: the program in front, and that of the lanes. */
	int spread = (features & TP_FEAT_ALL) == TP_FEAT_ALL || features == TP_BUILD_COMMON, n, most = -1;
	const char *path;
	__u32 part;

	for (part = 0; part <= (spread ? 2 : 0); part++) {
		path = object_for(features | (part ? TP_FEAT_SPREAD : 0));
		n = path ? load(path, features | (part ? TP_FEAT_SPREAD : 0), roles, part) : -1;
		if (n < 0)
			return -1;
		most = n > most ? n : most;
	}
	return most;
}

int main(int argc, char **argv)
{
	int i, n, sets = 0, refused = 0, most = 0;
	__u32 features, roles;

	libbpf_set_print(print_nothing);
	for (i = 1; i < argc && i <= OBJECTS_MAX; i++) {
		paths[i - 1] = argv[i];
		built[i - 1] = built_for(argv[i]);
	}
	for (features = 0; features <= (TP_FEAT_ALL | TP_FEAT_TRACE); features++) {
		if (!is_possible(features))
			continue;
		for (roles = TP_ROLE_N3; roles <= (TP_ROLE_N3 | TP_ROLE_N6); roles++) {
			n = load_parts(features, roles);
			most = n > most ? n : most;
			sets++;
			if (n >= 0)
				continue;
			refused++;
			printf("refused with features 0x%03x, roles %u\n%s\n", features, roles, verifier_log);
		}
	}
	printf("%s ...: %d of %d refused, at most %d instructions walked\n", argv[1], refused, sets, most);
	return refused != 0 || !sets;
}
