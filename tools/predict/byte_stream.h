/* Byte streams: a file or "-" (standard input), plain or gzip by its first bytes. */
#ifndef SL_TOOLS_PREDICT_BYTE_STREAM_H
#define SL_TOOLS_PREDICT_BYTE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream;

/* Returns NULL after a failure, whose message it has printed. path is borrowed. */
struct stream *stream_open(const char *path);
void stream_close(struct stream *stream); /* NULL is legal */
const char *stream_name(const struct stream *stream);

/* The size of a plain file; -1: unknown. */
int64_t stream_size(const struct stream *stream);

/* The next bytes, without taking them; fewer than STREAM_PEEK only at the end. Returns false after
 * a failure. */
enum { STREAM_PEEK = 16 };
bool stream_peek(struct stream *stream, const uint8_t **bytes, size_t *count);

/* size bytes, or fewer at the end. Returns false after a failure. */
bool stream_read(struct stream *stream, void *bytes, size_t size, size_t *count);

/* All remaining bytes; a failure if they are more than `most`. Free them with free(). Returns false
 * after a failure. */
bool stream_rest(struct stream *stream, size_t most, uint8_t **bytes, size_t *count);

/* A line without its line end, as soon as it has arrived; valid until the next call. *line is NULL
 * at the end of the stream. *ended: the line had a line end. Returns false after a failure. */
bool stream_line(struct stream *stream, const char **line, size_t *length, bool *ended);

#endif
