/* What every tool begins with: its version, the exit codes, how its command line is read. */
#ifndef SL_TOOLS_COMMON_COMMAND_LINE_H
#define SL_TOOLS_COMMON_COMMAND_LINE_H

#include <argp.h>

/* Exit codes of all programs. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* argp_parse; what it refuses ends the program with EXIT_USAGE. In messages the program's name has
 * neither its folder nor the "lt-" of libtool's wrappers. */
void start_program(const struct argp *argp, unsigned flags, int argc, char **argv, void *input);

#endif
