/* The command line as it was typed, to be pasted into a shell. */
#ifndef SL_TOOLS_TRAIN_COMMAND_TEXT_H
#define SL_TOOLS_TRAIN_COMMAND_TEXT_H

/* In a build folder it names libtool's wrapper. To be freed; "" without memory. */
char *command_text(int argc, char **argv);

#endif
