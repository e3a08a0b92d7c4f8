/* The members of a dataset, and the parsers that make one from bytes, which tests and fuzzers call
 * without files. */
#ifndef SL_DATA_DATASET_H
#define SL_DATA_DATASET_H

#include <starling/data.h>

/* A sample of a text in buckets. Its inputs are the set's tokens first .. first + length - 1; the
 * label of each is the next token. */
struct sl__sentence {
  int64_t first;
  int32_t length, bucket;
};

struct sl_dataset {
  struct sl_dataset_info info; /* the dataset owns info.name */
  size_t sample_size;          /* bytes of a sample, and floats of a normalised one */
  size_t plane;                /* values of a channel */
  uint8_t *samples;            /* NULL if the samples are tokens */
  int32_t *tokens;
  uint8_t *labels;
  struct sl__sentence *sentences; /* NULL without buckets */
  int64_t *buckets;               /* lengths, then samples; info points into it */
  int32_t end;                    /* token that ends a sentence */
  float *normal;                  /* means, then deviations; info points into it */
  /* normalised value of every byte: one table a channel, or one for all channels */
  float (*table)[256];
  size_t tables;
};

/* A zeroed dataset with memory for count samples; mean and deviation as in sl_dataset_new. */
enum sl_status sl__dataset_alloc(const char *name, const struct sl_shape *sample, int64_t count,
                                 int classes, const float *mean, const float *deviation,
                                 struct sl_dataset **dataset);

/* SL_BAD_FILE if a label is not below classes; path is for the message. */
enum sl_status sl__dataset_check_labels(const char *path, const uint8_t *labels, int64_t count,
                                        int classes);

/* SL_BAD_ARGUMENT if a token is not in 0 .. classes - 1; name is for the message. */
enum sl_status sl__dataset_check_tokens(const char *name, const int32_t *tokens, int64_t count,
                                        int classes);

/* Sample i as floats, mirrored and shifted by (dy, dx) pixels. Pixels outside the image are byte 0.
 */
struct sl__view {
  int dy, dx;
  bool mirror;
};
void sl__dataset_view(const struct sl_dataset *dataset, int64_t i, const struct sl__view *view,
                      float *values);

/* IDX (data/idx.c): images [count, height, width] or labels [count] of bytes. values points into
 * bytes. */
struct sl__idx {
  int64_t count, height, width; /* both 1 for labels */
  const uint8_t *values;
};
enum sl_status sl__idx_parse(const char *path, const uint8_t *bytes, size_t size, int ndim,
                             struct sl__idx *idx);
/* The MNIST set from its two files' bytes; the paths are for messages. */
enum sl_status sl__mnist_parse(const char *name, const char *image_path, const uint8_t *images,
                               size_t image_size, const char *label_path, const uint8_t *labels,
                               size_t label_size, struct sl_dataset **dataset);

/* CIFAR-10 (data/cifar.c): bytes of `files` files, each as long as the first. */
enum sl_status sl__cifar10_parse(const char *name, const char *const *paths, uint8_t *const *bytes,
                                 const size_t *sizes, int files, struct sl_dataset **dataset);
/* A zeroed set in CIFAR-10's format, with its normalisation. */
enum sl_status sl__cifar10_alloc(const char *name, int64_t count, struct sl_dataset **dataset);

/* MNIST's usual mean and deviation; the generated digits have the same. */
#define SL__MNIST_MEAN 0.1307f
#define SL__MNIST_DEVIATION 0.3081f

#endif
