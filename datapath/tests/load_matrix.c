/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Load every build of the XDP program as every port may need it: the verifier must take them all.
 * usage: load_matrix OBJECT... Exits 1 when one was refused, or comes close to what the verifier bears. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tp_abi.h"

static char verifier_log[1 << 24];

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

/* Contents of the verifier's log: how much it walked, or each instruction. */
#define LOG_STATS 4
#define LOG_WALK 1

/* Instructions the verifier walked, or -1. */
static int load(const char *path, __u32 features, __u32 roles, __u32 part, __u32 log)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	struct bpf_program *program = object ? bpf_object__find_program_by_name(object, "turnpike") : NULL;
	const char *walked;
	int n = -1;

	if (!program)
		return -1;
	verifier_log[0] = 0;
	bpf_program__set_log_buf(program, verifier_log, sizeof(verifier_log));
	bpf_program__set_log_level(program, log);
	if (!set_constant(object, "tp_features", features) && !set_constant(object, "tp_roles", roles) &&
	    !set_constant(object, "tp_spread", part) && !set_constant(object, "tp_lanes", part ? 2 : 0) &&
	    !bpf_object__load(object)) {
		walked = strstr(verifier_log, "processed ");
		n = walked ? atoi(walked + strlen("processed ")) : 0;
	}
	bpf_object__close(object);
	return n;
}

/* The verifier gives up at a million: what is added wants room. */
#define WALKED_MAX 500000

static int loads, refused;

/* The end of the log: where the verifier gave up. */
static const char *last_words(void)
{
	const size_t len = strlen(verifier_log), shown = 4000;
	const char *from = verifier_log + (len > shown ? len - shown : 0);
	const char *line = from > verifier_log ? strchr(from, '\n') : NULL;

	return line ? line + 1 : from;
}

/* One build, as one part of a port with these roles. The instructions walked, or -1. */
static int try(const char *path, __u32 features, __u32 roles, __u32 part)
{
	int n = load(path, features, roles, part, LOG_STATS);

	loads++;
	if (n >= 0 && n <= WALKED_MAX)
		return n;
	refused++;
	if (n < 0)
		load(path, features, roles, part, LOG_WALK);
	printf("%s with features 0x%04x, roles %u, part %u: %d instructions walked\n%s\n", path, features, roles, part, n,
	       last_words());
	return n;
}

/* A build as every port may need it: with and without atomics, traces and shaping, whole or spread over CPUs. Only users that
 * are spread need a build with TP_FEAT_SPREAD, but for the general one, and they may always meet on several CPUs. */
static void try_build(const char *path)
{
	__u32 built = built_for(path), optional = TP_FEAT_ATOMIC, left_out, roles, part;
	__u32 general = built & TP_FEAT_TRACE, first = (built & TP_FEAT_SPREAD) && !general, last = built & TP_FEAT_SPREAD ? 2 : 0;
	int n, most = 0;

	if (general)
		optional |= TP_FEAT_TRACE | TP_FEAT_SHAPE;
	for (roles = TP_ROLE_N3; roles <= (TP_ROLE_N3 | TP_ROLE_N6); roles++)
		for (part = first; part <= last; part++)
			for (left_out = 0; left_out <= optional; left_out++) {
				if ((left_out & ~optional) || (part && (left_out & TP_FEAT_ATOMIC)))
					continue;
				n = try(path, built & ~left_out & ~(part ? 0 : TP_FEAT_SPREAD), roles, part);
				most = n > most ? n : most;
			}
	printf("%s: at most %d instructions walked\n", path, most);
}

/* The program that serves PFCP, which has no features. */
static void try_n4(const char *path)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	struct bpf_program *program = object ? bpf_object__find_program_by_name(object, "tp_n4") : NULL;
	const char *walked;
	int n = -1;

	loads++;
	verifier_log[0] = 0;
	if (program) {
		bpf_program__set_log_buf(program, verifier_log, sizeof(verifier_log));
		bpf_program__set_log_level(program, LOG_STATS);
		walked = bpf_object__load(object) ? NULL : strstr(verifier_log, "processed ");
		n = walked ? atoi(walked + strlen("processed ")) : -1;
	}
	bpf_object__close(object);
	refused += n < 0 || n > WALKED_MAX;
	printf("%s: %d instructions walked\n%s", path, n, n < 0 ? last_words() : "");
}

int main(int argc, char **argv)
{
	int i;

	libbpf_set_print(print_nothing);
	for (i = 1; i < argc; i++)
		strstr(argv[i], "n4.bpf.o") ? try_n4(argv[i]) : try_build(argv[i]);
	printf("%d of %d loads refused\n", refused, loads);
	return refused != 0 || !loads;
}
