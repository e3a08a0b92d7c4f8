/* The members of a dataset, what its kind does, and the parsers that make one from bytes, which
 * tests and fuzzers call without files. */
#ifndef SL_DATA_DATASET_H
#define SL_DATA_DATASET_H

#include <starling/data.h>

/* Memory for the rows of a batch. */
struct sl__rows {
  float *x;        /* or int32_t, for tokens */
  int32_t *labels; /* NULL if the set has targets */
  float *targets;  /* NULL if it has labels */
};

/* What the datasets of one kind do. A kind's struct begins with struct sl_dataset. */
struct sl__dataset_kind {
  /* Writes these samples, normalised, to rows, one after the other, with their labels or targets.
   * Loaders' threads call it, several at once if a set has several loaders. */
  enum sl_status (*fill)(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                         const struct sl__rows *rows);
  /* A function of the program's writes them, which may not bear calls at once: a loader has one
   * thread unless the program asks for more. */
  bool one_reader;
  /* The same as `fill` of a set that is not normalised, but normalised as `info` says and checked,
   * where one pass over the values can do both; NULL: whoever normalises does it after `fill`. */
  enum sl_status (*fill_normal)(const struct sl_dataset *set, const struct sl_dataset_info *info,
                                int64_t count, const int64_t *samples, const struct sl__rows *rows);
  /* These samples are read soon, so that their part of a file may be read meanwhile; NULL: they are
   * in memory. */
  void (*expect)(const struct sl_dataset *set, int64_t count, const int64_t *samples);
  /* The labels of these samples alone, where that takes less than their inputs, too; NULL: `fill`
   * gives them. */
  enum sl_status (*fill_labels)(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                                int32_t *labels);
  /* Number of the labels of sample i that count; NULL: all of them. */
  int64_t (*labels)(const struct sl_dataset *set, int64_t i);
  /* The bucket of sample i; NULL: the set has none. */
  int (*bucket)(const struct sl_dataset *set, int64_t i);
  /* The number that sample i has in the file or the set that it comes from, for messages; NULL: i.
   */
  int64_t (*number)(const struct sl_dataset *set, int64_t i);
  /* Frees what the kind has added to struct sl_dataset; NULL: nothing. */
  void (*free)(struct sl_dataset *set);
};

struct sl_dataset {
  const struct sl__dataset_kind *kind;
  struct sl_dataset_info info;   /* the dataset owns info.name and the fields */
  size_t sample_size;            /* values of a sample */
  size_t label_count;            /* labels of a sample; 0: it has targets */
  size_t target_size;            /* values of a sample's targets; 0: it has labels */
  float *normal, *target_normal; /* means, then deviations; info points into them */
};

/* Begins a set of `size` bytes: checks info's name, sample, target, count and classes, and copies
 * them. The rest is zero. */
enum sl_status sl__dataset_begin(const struct sl__dataset_kind *kind, size_t size,
                                 const struct sl_dataset_info *info, struct sl_dataset **set);

/* "photos", or "photos without 2 bad pictures (cat/7.jpg first)": one and many name the samples
 * that it lacks, `first` the first of these. To be freed; NULL without memory. */
char *sl__name_without(const char *name, int64_t count, const char *one, const char *many,
                       const char *first);

/* ---- fields of rows (data/fields.c) ---- */

/* Copies the fields, with their places in the row; *row becomes [values]. what: "input" or
 * "target". SL_BAD_ARGUMENT for names that are missing, impossible or there twice, shapes that are
 * impossible, classes out of range, or a row that is neither left out nor [values]. */
enum sl_status sl__fields_copy(const char *set, const char *what, const struct sl_row_field *fields,
                               int count, struct sl_shape *row, struct sl_row_field **copy);
void sl__fields_free(const struct sl_row_field *fields, int count);
/* SL_BAD_SHAPE unless both sets have the same fields (of targets: b's classes are among a's). */
enum sl_status sl__fields_alike(const struct sl_dataset_info *a, const struct sl_dataset_info *b);

/* Copies means and deviations; NULL: 0 and 1, one for all. */
struct sl__normal {
  int channels; /* 0 without mean and deviation; else 1 (for all), or the first axis's length */
  const float *mean, *deviation;
};
enum sl_status sl__dataset_normalise(struct sl_dataset *set, const struct sl__normal *inputs,
                                     const struct sl__normal *targets);

/* How the samples of a generated set are made: draw returns the label of sample i, and draws the
 * sample where pixels is not NULL. It gives the same for the same arguments, from any thread. */
struct sl__drawing {
  int32_t (*draw)(uint64_t seed, bool train, int64_t i, uint8_t *pixels);
  uint64_t seed;
  bool train;
};

/* Images of bytes, normalised when they are read (data/bytes.c). */
struct sl__byte_set {
  struct sl_dataset set;
  uint8_t *samples;
  int32_t *labels;
  struct sl__byte_channel *channels; /* one a channel, or one for all */
  struct sl__drawing drawing;
  uint8_t *drawn; /* of each sample: is it drawn? NULL: all samples are there */
};

/* A zeroed set of count images; mean and deviation as in sl_dataset_new. */
enum sl_status sl__byte_set_new(const char *name, const struct sl_shape *sample, int64_t count,
                                int classes, const float *mean, const float *deviation,
                                struct sl__byte_set **set);

/* Sets all labels; *dataset is the set then, which is freed after a failure. Samples are drawn when
 * they are first read: a short run, or one of many ranks, reads few of them. */
enum sl_status sl__byte_set_draw(struct sl__byte_set *set, const struct sl__drawing *drawing,
                                 struct sl_dataset **dataset);

/* The bytes of sample i. */
const uint8_t *sl__byte_set_sample(const struct sl__byte_set *set, int64_t i);

/* The set as one of bytes; NULL if it is none. */
struct sl__byte_set *sl__as_byte_set(const struct sl_dataset *set);

/* The first label that is not from 0 to classes - 1 (missing: nor SL_IGNORE); count if there is
 * none. */
int64_t sl__first_bad_label(const int32_t *labels, int64_t count, int classes, bool missing);

/* SL_BAD_FILE for such a label; path is for the message. */
enum sl_status sl__dataset_check_labels(const char *path, const int32_t *labels, int64_t count,
                                        int classes);

/* SL_BAD_ARGUMENT if a token is not in 0 .. classes - 1; name is for the message. */
enum sl_status sl__dataset_check_tokens(const char *name, const int32_t *tokens, int64_t count,
                                        int classes);

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
enum sl_status sl__cifar10_alloc(const char *name, int64_t count, struct sl__byte_set **set);

/* MNIST's usual mean and deviation; the generated digits have the same. */
#define SL__MNIST_MEAN 0.1307f
#define SL__MNIST_DEVIATION 0.3081f

/* Do the bytes begin as the header of a token file? */
bool sl__is_token_file(const uint8_t *bytes, size_t size);

#endif
