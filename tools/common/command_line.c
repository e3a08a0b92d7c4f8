#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tools/common/command_line.h"

#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

/* visible, or argp does not find it */
__attribute__((visibility("default"))) const char *argp_program_version =
    "Starling " PACKAGE_VERSION;

const char *program_name(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  return strncmp(name, "lt-", 3) == 0 ? name + 3 : name;
}

const char *program_version(void) { return argp_program_version; }

void start_program(const struct argp *argp, unsigned flags, int argc, char **argv, void *input) {
  argv[0] = (char *)program_name(argv[0]);
  argp_err_exit_status = EXIT_USAGE;
  argp_parse(argp, argc, argv, flags, NULL, input);
}
