/* The command line as it was typed, to be pasted into a shell. */
#ifndef SL_TOOLS_TRAIN_COMMAND_TEXT_H
#define SL_TOOLS_TRAIN_COMMAND_TEXT_H

#include <stdio.h>

/* A word, in quotes if a shell needs them. */
void command_print_word(FILE *out, const char *word);

/* In a build folder it names libtool's wrapper. To be freed; "" without memory. */
char *command_text(int argc, char **argv);

#endif
