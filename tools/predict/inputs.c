/* The inputs of the command line: files, folders with a dataset, names of generated datasets. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/predict/predict.h"

void add_input(struct program *p, const char *name) {
  p->inputs = reallocarray(p->inputs, (size_t)p->input_count + 1, sizeof *p->inputs);
  char *copy = strdup(name);
  if (!p->inputs || !copy) exit(fail_memory());
  p->inputs[p->input_count++] = copy;
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The first of the names that the folder has, added as an input. */
static bool add_from(struct program *p, const char *folder, const char *const *names) {
  char path[PATH_MAX];
  for (int i = 0; names[i]; i++) {
    int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    if (length >= PATH_MAX || access(path, F_OK) != 0) continue;
    add_input(p, path);
    return true;
  }
  return false;
}

static bool add_cifar10(struct program *p, const char *folder) {
  char names[2][64];
  bool any = false;
  for (int f = 1; f <= 5; f++) {
    const char *file = p->images.train ? "data_batch_%d.bin" : "test_batch.bin";
    char name[32];
    snprintf(name, sizeof name, file, f);
    snprintf(names[0], sizeof names[0], "%s", name);
    snprintf(names[1], sizeof names[1], "cifar-10-batches-bin/%s", name);
    any |= add_from(p, folder, (const char *const[]){names[0], names[1], NULL});
    if (!p->images.train) break;
  }
  return any;
}

static int add_folder(struct program *p, const char *folder) {
  static const char *const mnist[][3] = {
      {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz", NULL},
      {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", NULL}};
  /* these two are read piece by piece, so that a set may be larger than the memory */
  if (add_from(p, folder, mnist[p->images.train]) || add_cifar10(p, folder)) return EXIT_DONE;
  if (sl_dataset_detect(folder)) {
    add_input(p, folder);
    return EXIT_DONE;
  }
  return fail(EXIT_FAILED,
              "%s: holds neither MNIST's %s set (%s) nor CIFAR-10's; is it the right folder?",
              folder, p->images.train ? "training" : "test", mnist[p->images.train][0]);
}

int find_inputs(struct program *p) {
  char **names = p->inputs;
  int count = p->input_count, code = EXIT_DONE;
  p->inputs = NULL;
  p->input_count = 0;
  for (int i = 0; i < count && code == EXIT_DONE; i++) {
    if (is_folder(names[i]))
      code = add_folder(p, names[i]);
    else if (!strcmp(names[i], "-") || dataset_kind(names[i]) || access(names[i], R_OK) == 0)
      add_input(p, names[i]);
    else
      code = fail(EXIT_FAILED, "%s: cannot be opened: %s", names[i], strerror(errno));
  }
  for (int i = 0; i < count; i++) free(names[i]);
  free(names);
  return code;
}
