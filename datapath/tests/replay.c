/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Feed files to a fuzz entry without libFuzzer, then mutations of them: the ordinary tests' share.
 * usage: replay DIRECTORY */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUTATIONS 2000

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static uint64_t seed = 0x5eed;

static uint32_t next_random(void)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33);
}

static void mutate(uint8_t *data, size_t *size)
{
	uint32_t i, n = 1 + next_random() % 4;

	for (i = 0; i < n && *size; i++)
		data[next_random() % *size] = next_random() & 1 ? (uint8_t)next_random() : (uint8_t)(1 << next_random() % 8);
	if (next_random() % 8 == 0 && *size)
		*size = next_random() % *size;
}

static int replay(const char *path)
{
	static uint8_t original[4096], data[4096];
	FILE *file = fopen(path, "rb");
	size_t size, length, i;

	if (!file)
		return 1;
	length = fread(original, 1, sizeof(original), file);
	fclose(file);
	LLVMFuzzerTestOneInput(original, length);
	for (i = 0; i < MUTATIONS; i++) {
		size = length;
		memcpy(data, original, length);
		mutate(data, &size);
		LLVMFuzzerTestOneInput(data, size);
	}
	return 0;
}

int main(int argc, char **argv)
{
	DIR *directory = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *entry;
	char path[4096];
	int files = 0;

	if (!directory)
		return 2;
	while ((entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
		if (replay(path))
			return 1;
		files++;
	}
	closedir(directory);
	printf("corpus: %d files, %d mutations of each\n", files, MUTATIONS);
	return files == 0;
}
