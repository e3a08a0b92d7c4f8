/* The beginning of every program: its version, the exit codes, the start of its parser. */
#ifndef SL_TOOLS_COMMON_COMMAND_LINE_H
#define SL_TOOLS_COMMON_COMMAND_LINE_H

#include <argp.h>

/* Exit codes of all programs. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* A path without its folder and without the "lt-" of libtool's wrappers. */
const char *program_name(const char *path);

/* "Starling 0.1.0" */
const char *program_version(void);

/* Opens /dev/null for each standard stream that is closed, then argp_parse; a wrong option ends the
 * program with EXIT_USAGE. In messages the program has program_name's name. */
void start_program(const struct argp *argp, unsigned flags, int argc, char **argv, void *input);

/* For output_lost: a write to the standard output has failed with this value of errno. */
void output_failed(int error);

/* Writes out the rest of the standard output. Returns NULL, or why a part of it is lost; "": its
 * reader has ended, such as `| head`. */
const char *output_lost(void);

/* For programs whose result is the standard output: of one that succeeded, EXIT_FAILED and one line
 * on the error stream if a part of it is lost, unless its reader has ended. Else code. */
int finish_output(const char *program, int code);

#endif
