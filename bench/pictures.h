/* Generated JPEGs, and libjpeg decoding them alone, beside which the loader of pictures is
 * measured. */
#ifndef SL_BENCH_PICTURES_H
#define SL_BENCH_PICTURES_H

#include <stdint.h>

/* Writes the folders a and b of JPEGs into the folder: count colour pictures of side x side pixels,
 * waves and noise, quality 85, unless the last one is there. Returns 0, or an errno. */
int pictures_make(const char *folder, int64_t count, int side);

/* Reads and decodes them all to bytes on the given number of threads; nothing is kept. Returns 0,
 * or 1 where one could not be decoded. */
int pictures_decode(const char *folder, int64_t count, int threads);

#endif
