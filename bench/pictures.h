/* Generated JPEGs, and libjpeg alone decoding them: what a loader of pictures is measured by. */
#ifndef SL_BENCH_PICTURES_H
#define SL_BENCH_PICTURES_H

#include <stdint.h>

/* Writes the folders a and b of JPEGs into the folder: count colour pictures of side x side pixels,
 * waves and noise, quality 85, unless the last one is there. Returns 0, or an errno. */
int pictures_make(const char *folder, int64_t count, int side);

/* Reads and decodes them all to bytes on so many threads; nothing is kept. Returns 0, or 1 where
 * one could not be decoded. */
int pictures_decode(const char *folder, int64_t count, int threads);

#endif
