#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tools/common/command_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* If a standard stream is closed, the next file that is opened gets its number, and messages would
 * be written into that file. For reading only: what a closed output does not take is lost, and must
 * not seem written. */
static void open_standard_streams(void) {
  int file;
  do file = open("/dev/null", O_RDONLY);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) close(file);
}

/* Under a limit of address space OpenBLAS' threads may ask for their buffers for good, and its end
 * waits for these threads. */
static void end_at_once(int status, void *unused) {
  (void)unused;
  fflush(NULL);
  _exit(status);
}

static bool has_address_limit(void) {
  struct rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static const char *parsing; /* the program, while its command line is read */

/* argp's --help ends the program by itself. */
static void finish_help(int status, void *unused) {
  (void)unused;
  if (parsing && finish_output(parsing, status) != status) _exit(EXIT_FAILED);
}

void start_program(const struct argp *argp, unsigned flags, int argc, char **argv, void *input) {
  open_standard_streams();
  if (has_address_limit()) on_exit(end_at_once, NULL);
  argv[0] = (char *)program_name(argv[0]);
  argp_err_exit_status = EXIT_USAGE;
  parsing = argv[0];
  on_exit(finish_help, NULL);
  int error = argp_parse(argp, argc, argv, flags, NULL, input);
  parsing = NULL;
  if (!error) return; /* wrong options have ended the program */
  fprintf(stderr, "%s: the command line cannot be read: %s\n", argv[0], strerror(error));
  exit(EXIT_FAILED);
}

static int output_error; /* errno of the first write that failed */

void output_failed(int error) {
  if (!output_error) output_error = error;
}

const char *output_lost(void) {
  if (fflush(stdout) != 0) output_failed(errno); /* of an earlier failure only a mark is left */
  if (output_error) return output_error == EPIPE ? "" : strerror(output_error);
  return ferror(stdout) ? "a part of it is lost" : NULL;
}

int finish_output(const char *program, int code) {
  const char *why = output_lost();
  if (code != EXIT_DONE || !why || !*why) return code;
  fprintf(stderr, "%s: the output cannot be written: %s\n", program, why);
  return EXIT_FAILED;
}
