/* Datasets in memory, and loaders that turn them into batches ahead of the training. */
#ifndef STARLING_DATA_H
#define STARLING_DATA_H

#include <starling/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup dataset Datasets
 * Images (or vectors) of 8-bit values with one class label each, whole in memory. */
struct sl_dataset;

struct sl_dataset_info {
  const char *name;       /**< "MNIST, training set", for messages */
  struct sl_shape sample; /**< [C, H, W] */
  int64_t count;
  int classes;  /**< labels are 0 .. classes - 1 */
  bool tokens;  /**< samples are tokens (i32) [T], and each has a label of its own */
  int channels; /**< entries of mean and deviation: one for all channels, or one each; 0: tokens */
  const float *mean, *deviation;  /**< value = (byte / 255 - mean[c]) / deviation[c] */
  const char *const *class_names; /**< [classes], or NULL: they are numbers */
  /* of sentences in buckets (sl_sentences_new); 0 and NULL for all other sets */
  int bucket_count;
  const int64_t *buckets;        /**< [bucket_count], the buckets' lengths in tokens, ascending */
  const int64_t *bucket_samples; /**< [bucket_count], samples in each */
  int64_t padding; /**< label places of the whole set, each sample as long as its bucket, that are
                      behind a sentence's end */
  int64_t longer;  /**< sentences longer than the last bucket, which were cut or dropped */
};

/** MNIST's IDX files, plain or .gz: train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-*
 * (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist). A plain file is preferred to its .gz.
 * Values become (v / 255 - 0.1307) / 0.3081.
 * \return SL_IO for a file that is missing or unreadable, SL_BAD_FILE for a wrong magic number, a
 * short or overlong file, counts that differ, a label above 9. */
SL_API enum sl_status sl_mnist_open(const char *folder, bool train, struct sl_dataset **dataset);

/** CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin, or test_batch.bin (Krizhevsky
 * 2009), [3, 32, 32]; values are normalised by the training set's usual means and deviations per
 * channel. The folder may be the one that holds cifar-10-batches-bin. Errors as sl_mnist_open. */
SL_API enum sl_status sl_cifar10_open(const char *folder, bool train, struct sl_dataset **dataset);

/** Generated digits, [1, 28, 28]: strokes with random slant, scale, shift, thickness and noise.
 * Sample i depends on (seed, train, i) only. count 0: 10,000 for training and 2,000 for testing. */
SL_API enum sl_status sl_digits_new(int64_t count, uint64_t seed, bool train,
                                    struct sl_dataset **dataset);

/** The same images as CIFAR-10's files in a folder, which must be there: data_batch_1.bin to
 * data_batch_5.bin, or test_batch.bin. \return SL_BAD_ARGUMENT if the samples are not [3, 32,
 * 32] of at most 10 classes, or training samples no multiple of 5; SL_IO. */
SL_API enum sl_status sl_cifar10_write(const struct sl_dataset *dataset, const char *folder,
                                       bool train);

/** Generated shapes in CIFAR-10's format, [3, 32, 32]: disc, square, triangle, star, cross, ring,
 * crescent, arrow, heart, bolt (classes 0 to 9), each at random place, size, angle and aspect, on
 * a background, both with random colours and textures, which say nothing of the class, and noise.
 * Sample i depends on (seed, train, i) only. count 0: 10,000 for training and 2,000 for testing.
 * Normalised as CIFAR-10 is. */
SL_API enum sl_status sl_shapes_new(int64_t count, uint64_t seed, bool train,
                                    struct sl_dataset **dataset);

/** A generated set by its name ("digits", "shapes"), or a folder in which a format's files are
 * found (MNIST, CIFAR-10); sl_dataset_format lists both. seed: of a generated set. \return SL_IO
 * for a folder without such files, and what the reader of its format returns. */
SL_API enum sl_status sl_dataset_open(const char *name, uint64_t seed, bool train,
                                      struct sl_dataset **dataset);

/** One thing that sl_dataset_open knows. */
struct sl_dataset_format {
  const char *name;  /**< "digits", "MNIST" */
  const char *about; /**< "grey images of 28x28 pixels, 10 classes" */
  const char *files; /**< files by which a folder is recognised; NULL if it is generated */
  bool generated;    /**< `name` is what sl_dataset_open takes; else it takes a folder */
};

/** Entry i, from 0; NULL behind the last. */
SL_API const struct sl_dataset_format *sl_dataset_format(int i);

/** The entry by which sl_dataset_open would open `name`; NULL if it would refuse. */
SL_API const struct sl_dataset_format *sl_dataset_detect(const char *name);

/** A dataset of the caller's own values: samples [count, C, H, W] bytes and labels are copied;
 * value = (byte / 255 - mean[c]) / deviation[c] (NULL: 0 and 1).
 * \return SL_BAD_ARGUMENT for a label outside 0 .. classes - 1 or a deviation of 0. */
SL_API enum sl_status sl_dataset_new(const char *name, const struct sl_shape *sample, int64_t count,
                                     int classes, const uint8_t *samples, const uint8_t *labels,
                                     const float *mean, const float *deviation,
                                     struct sl_dataset **dataset);

/** A text of tokens 0 .. classes - 1 (copied), as samples of steps tokens each: sample i are tokens
 * i steps, i steps + 1, ...; the label of each is the token after it. What does not fill a sample
 * at the end is left out. \return SL_BAD_ARGUMENT for a token outside 0 .. classes - 1, or too few
 * for one sample. */
SL_API enum sl_status sl_tokens_new(const char *name, const int32_t *tokens, int64_t count,
                                    int64_t steps, int classes, struct sl_dataset **dataset);

#define SL_MAX_BUCKETS 64

/** What happens to sentences longer than the last bucket. */
enum sl_long {
  SL_LONG_SPLIT, /**< they are cut into pieces, all but the last as long as the last bucket */
  SL_LONG_DROP   /**< they are left out */
};

struct sl_sentences_options {
  int32_t end; /**< token that ends a sentence; also the input before a sentence's first token */
  const int64_t *buckets; /**< [bucket_count], ascending lengths in tokens, 1 or more; NULL: chosen
                             from the text's lengths so that padding is least */
  int bucket_count;       /**< 1 to SL_MAX_BUCKETS; with buckets NULL: how many to choose at most */
  int64_t longest;        /**< with buckets NULL: the last bucket is at most this; 0: it is as long
                             as the longest sentence */
  enum sl_long longer;
};

/** A text of tokens 0 .. classes - 1 (copied), cut into sentences, which are sorted into buckets by
 * their lengths: each goes to the shortest bucket that holds it, and a loader's batch is of one
 * bucket. A sentence are the tokens w1 .. wn up to and with its `end`; the last one may lack it. It
 * is one sample of n inputs `end`, w1 .. w(n-1) and n labels w1 .. wn; a lone `end` (an empty line)
 * is a sentence of 1. Each piece of a cut sentence has as first input the token before its first
 * label. So every token of the text is a label once, unless it was dropped. info.sample is [last
 * bucket's length].
 * \return SL_BAD_ARGUMENT for a token or `end` outside 0 .. classes - 1, no tokens, buckets that
 * are too many, not ascending or below 1, a negative longest, or no sentence left after dropping.
 */
SL_API enum sl_status sl_sentences_new(const char *name, const int32_t *tokens, int64_t count,
                                       int classes, const struct sl_sentences_options *options,
                                       struct sl_dataset **dataset);

SL_API const struct sl_dataset_info *sl_dataset_info(const struct sl_dataset *dataset);

/** Sample i as floats [C, H, W] (normalised) and its label. */
SL_API enum sl_status sl_dataset_get(const struct sl_dataset *dataset, int64_t i, float *values,
                                     int32_t *label);

SL_API void sl_dataset_free(struct sl_dataset *dataset);

/** \defgroup loader Loaders
 * A thread of the loader's own fills batches ahead of the training. */
struct sl_loader;

struct sl_loader_options {
  int64_t batch;   /**< samples a batch; required */
  uint64_t seed;   /**< of the order and the augmentation */
  bool contiguous; /**< tokens: each row of a batch goes on where it ended in the batch before; the
                      text is cut into batch x num_parts runs, and what is over is left out */
  bool shuffle;    /**< a new order every epoch, from (seed, epoch) only */
  int shift; /**< augmentation: shift by up to this many pixels, 0 none; edges become 0 bytes */
  bool flip; /**< augmentation: mirror every second sample, left to right */
  int64_t part_index; /**< this loader reads part part_index of num_parts; */
  int64_t num_parts;  /**< 0 means 1. All parts together are the set, each sample once an epoch. */
  int slots;          /**< batches in memory at once; 0 means 4, at least 2 */
};

/** One batch. The last of an epoch may be short: then samples repeat from its first one, with the
 * label SL_IGNORE, which counts neither in the loss nor in the accuracy.
 *
 * Of sentences (sl_sentences_new), a batch is of one bucket, and the last one of each may be short.
 * Behind a sentence's end stand tokens `end` with the label SL_IGNORE. Unshuffled, buckets come in
 * ascending order, samples in the text's; shuffled, so are the samples of each bucket, and the
 * batches of all. All parts have the same sequence of buckets; one without samples left in a bucket
 * has valid 0. */
#define SL_IGNORE (-1)

struct sl_batch {
  const float *x;        /**< [batch, C, H, W]; NULL if the samples are tokens */
  const int32_t *tokens; /**< [batch, T], or NULL; T = info.sample.dim[0] whatever steps is */
  const int32_t *labels; /**< [batch], or [batch, T] */
  int64_t batch;         /**< rows, always the loader's batch */
  int64_t steps;         /**< of tokens: time steps of this batch, its bucket's length (else T), 0
                            for images; places behind them are padding */
  int64_t valid;         /**< labels that count */
  int64_t valid_all;     /**< the same of all parts' batches of this index together */
  int64_t epoch;         /**< from 0 */
  int64_t index;         /**< of the batch in its epoch, from 0 */
  bool last;             /**< last of its epoch */
  int slot;              /**< to be handed back by sl_loader_recycle */
};

/** \return SL_BAD_ARGUMENT for a batch that is not positive, a part without samples (of sentences:
 * more parts than samples in the fullest bucket), or sentences to be contiguous. */
SL_API enum sl_status sl_loader_new(const struct sl_dataset *dataset,
                                    const struct sl_loader_options *options,
                                    struct sl_loader **loader);

SL_API const struct sl_dataset *sl_loader_dataset(const struct sl_loader *loader);
SL_API int64_t sl_loader_batch(const struct sl_loader *loader);

/** The options in force, defaults filled in. */
SL_API const struct sl_loader_options *sl_loader_settings(const struct sl_loader *loader);

/** Batches an epoch, of all buckets. */
SL_API int64_t sl_loader_length(const struct sl_loader *loader);

/** The memory of one slot, fixed for the loader's life (so that it can be registered and pinned).
 */
SL_API int sl_loader_slots(const struct sl_loader *loader);
SL_API void sl_loader_slot(const struct sl_loader *loader, int slot, float **x, int32_t **labels);

/** Wait for the next batch (epoch after epoch, without end). Each one is handed out once; at most
 * slots - 1 may be out at a time. \return SL_BAD_ARGUMENT if all slots are out. */
SL_API enum sl_status sl_loader_next(struct sl_loader *loader, struct sl_batch *batch);

/** The slot's memory may be filled again. */
SL_API void sl_loader_recycle(struct sl_loader *loader, int slot);

/** Start over at the first batch of an epoch; every slot must have been recycled. */
SL_API enum sl_status sl_loader_seek(struct sl_loader *loader, int64_t epoch);

/** The same at batch `index` of an epoch, from 0: the batches are those that an uninterrupted run
 * would get from there on. \return SL_BAD_ARGUMENT for an epoch or a batch that does not exist, or
 * if batches are still out. */
SL_API enum sl_status sl_loader_seek_batch(struct sl_loader *loader, int64_t epoch, int64_t index);

SL_API void sl_loader_free(struct sl_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
