#include "tools/common/command_line.h"

#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

/* visible, or argp does not find it */
__attribute__((visibility("default"))) const char *argp_program_version =
    "Starling " PACKAGE_VERSION;

void start_program(const struct argp *argp, unsigned flags, int argc, char **argv, void *input) {
  char *slash = strrchr(argv[0], '/');
  if (slash) argv[0] = slash + 1;
  if (!strncmp(argv[0], "lt-", 3)) argv[0] += 3;
  argp_err_exit_status = EXIT_USAGE;
  argp_parse(argp, argc, argv, flags, NULL, input);
}
