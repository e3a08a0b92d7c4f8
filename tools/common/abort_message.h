/* An end with a message where StarPU aborts because of a GPU. */
#ifndef SL_TOOLS_COMMON_ABORT_MESSAGE_H
#define SL_TOOLS_COMMON_ABORT_MESSAGE_H

/* From now on: one line and exit code 1, where sl_last_words knows why; else the abort goes its
 * way. To be called after sl_open, since StarPU installs a handler of its own. */
void aborted_catch(const char *program, int rank);

/* The program has said why it fails: then only its exit code is left to be seen to. */
void aborted_told(void);

#endif
