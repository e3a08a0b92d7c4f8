/* Names and paths that a text for others leaves out: what the user gave to options, and the names
 * of this host, user and folder. */
#ifndef SL_TOOLS_TRAIN_PRIVATE_TEXT_H
#define SL_TOOLS_TRAIN_PRIVATE_TEXT_H

#include "tools/train/cli.h"

struct private_text {
  char *text, *instead;
};

struct private_texts {
  struct private_text *list; /* the longest first */
  size_t count, room;
};

/* A text that is no name of the row's, and no number, is the user's own. */
bool private_text_is_own(const struct option_row *row, const char *text);

/* false: no memory. */
bool private_texts_open(struct private_texts *texts, const struct cli *cli);
void private_texts_close(struct private_texts *texts);

/* The text with (--data), (path), (address) or (name) instead of what is private. */
void private_texts_print(const struct private_texts *texts, const char *text, FILE *out);

/* The same into to; what has no room is cut off. Handlers of signals may call it. */
void private_texts_hide(const struct private_texts *texts, const char *text, char *to, size_t size);

#endif
