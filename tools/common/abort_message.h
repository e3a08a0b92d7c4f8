/* An end with a message where StarPU aborts because of a GPU. */
#ifndef SL_TOOLS_COMMON_ABORT_MESSAGE_H
#define SL_TOOLS_COMMON_ABORT_MESSAGE_H

/* From now on an abort prints one line and ends with exit code 1 if sl_last_words knows the reason;
 * else it goes on as before. To be called after sl_open, since StarPU installs its own handler. */
void aborted_catch(const char *program, int rank);

/* The program has printed its failure: a later abort sets only the exit code. */
void aborted_told(void);

#endif
