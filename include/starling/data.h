/* Datasets, and loaders that turn them into batches ahead of the training. */
#ifndef STARLING_DATA_H
#define STARLING_DATA_H

#include <starling/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup dataset Datasets
 * Samples with one class label each, or with targets: numbers that a regression is to predict.
 * Samples are images (or vectors) of 8-bit values, floats of any shape, tokens, or what a function
 * of the program's own delivers. */
struct sl_dataset;

/** Most classes of a dataset. */
#define SL_MAX_CLASSES (1 << 24)

/** A column of a table that is an input. */
struct sl_column {
  const char *name;
  int text_count;           /**< 0: numbers, one input; else each text is an input of its own, 1 for
                               the one that a field has, 0 for the others */
  const char *const *texts; /**< [text_count], in the inputs' order */
  bool missing; /**< fields may be missing: they become the training's mean, or none of the texts */
};

struct sl_dataset_info {
  const char *name;       /**< "MNIST, training set", for messages */
  struct sl_shape sample; /**< of one sample: [C, H, W] of images, [values] of a table, [T] of
                             tokens, any other of floats */
  struct sl_shape target; /**< of a sample's targets (f32); ndim 0: the set has class labels */
  int64_t count;
  int classes;  /**< labels are 0 .. classes - 1; 0: the set has targets */
  bool missing; /**< some targets may be NaN, or some labels SL_IGNORE: they do not count */
  bool tokens;  /**< samples are tokens (i32) [T], and each has a label of its own */
  int channels; /**< entries of mean and deviation: one for all channels, or one each; 0: tokens */
  bool bytes;   /**< value = (byte / 255 - mean[c]) / deviation[c]; else (float - ...) / ... */
  const float *mean, *deviation;
  int target_channels; /**< as channels, of target_mean and target_deviation */
  const float *target_mean, *target_deviation; /**< answer = value * target_deviation[c] +
                                                  target_mean[c] is in the targets' unit */
  const char *const *class_names;              /**< [classes], or NULL: they are numbers */
  /* of a table; 0 and NULL for all other sets */
  int column_count;
  const struct sl_column *columns; /**< [column_count], the inputs', in their order */
  int target_name_count;
  const char *const *target_names; /**< [target_name_count], of the columns of the targets */
  /* of sentences in buckets (sl_sentences_new); 0 and NULL for all other sets */
  int bucket_count;
  const int64_t *buckets;        /**< [bucket_count], the buckets' lengths in tokens, ascending */
  const int64_t *bucket_samples; /**< [bucket_count], samples in each */
  int64_t padding; /**< label places of the whole set, each sample as long as its bucket, that are
                      behind a sentence's end */
  int64_t longer;  /**< sentences longer than the last bucket, which were cut or dropped */
  /** Fields of a sample's row and of its targets', [input_count] and [target_count]; 0: they are
   * one tensor without a name. With fields, sample and target are flat: [values]. */
  const struct sl_row_field *inputs, *targets;
  int input_count, target_count;
  int64_t left_out; /**< pictures that cannot be decoded (skip_bad), of all files that were read,
                       held back or not */
};

/** MNIST's IDX files, [1, 28, 28], plain or .gz: train-images-idx3-ubyte and
 * train-labels-idx1-ubyte, or t10k-* (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist). A
 * plain file is preferred to its .gz. Values become (v / 255 - 0.1307) / 0.3081. \return SL_IO for
 * a file that is missing or unreadable, SL_BAD_FILE for a wrong magic number, a short or overlong
 * file, counts that differ, a label above 9. */
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

/** A generated regression, [10] to [1]: y = 10 sin(pi x1 x2) + 20 (x3 - 0.5)^2 + 10 x4 + 5 x5 +
 * noise of deviation 1, x1 to x10 from 0 to 1 (Friedman 1991, Multivariate adaptive regression
 * splines). No model's root mean squared error on new samples is below 1. Sample i depends on
 * (seed, train, i) only. count 0: 10,000 for training and 2,000 for testing. */
SL_API enum sl_status sl_friedman_new(int64_t count, uint64_t seed, bool train,
                                      struct sl_dataset **dataset);

/** A generated set by its name ("digits", "shapes", "friedman"), or a folder in which a format's
 * files are found (MNIST, CIFAR-10); sl_dataset_format lists both. seed: of a generated set.
 * \return SL_IO for a folder without such files, and what the reader of its format returns. */
SL_API enum sl_status sl_dataset_open(const char *name, uint64_t seed, bool train,
                                      struct sl_dataset **dataset);

/** What is done about a table's fields that are empty, NA, N/A, NaN or null. */
enum sl_missing {
  SL_MISSING_REFUSE, /**< SL_BAD_FILE, with the line and the column */
  SL_MISSING_DROP,   /**< rows with such a field are left out */
  SL_MISSING_MEAN    /**< a number becomes its column's mean in the training part, a text none of
                          the column's texts; rows without a target are left out */
};

/** The kind of a sample's targets. */
enum sl_target_kind {
  SL_TARGET_AUTO,    /**< texts, and whole numbers of arrays, are classes; all else are values */
  SL_TARGET_CLASSES, /**< one class label a sample */
  SL_TARGET_VALUES   /**< numbers (f32) */
};

/** How the files of a dataset are read. All zero serves many. Members that the format of the files
 * does not use must be zero. */
struct sl_reader_options {
  uint64_t seed; /**< of a generated set, and of the split */
  /** Arrays: the name of the inputs, NULL: "x"; or several, "NAME,NAME", which become fields of the
   * set's inputs. A slice in NumPy's words may stand behind each name, "state[:, 0:2, -1]", and
   * only it is read: for each axis a:b, a:, :b, a:b:step or :, negative numbers count from the end,
   * and a number alone takes one element and the axis away. The first axis counts samples: a range
   * of it, of the same length in all arrays. No range may reach beyond its axis. Two slices of one
   * array have the slice's text in their fields' names: "x[:,0:2]" is x_0.2, "x[0:9,3]" x_0.9_3. */
  const char *inputs;
  const char *tokens; /**< arrays: those of the inputs that are tokens, "NAME,NAME": whole numbers
                         from 0, for an embedding, which are not normalised; the inputs are then
                         fields, even if there is one. NULL: all are numbers */
  const char *target; /**< arrays: the name of the targets, NULL: "y", or several, "NAME,NAME",
                         which become fields, or slices, as of the inputs; beside an .npy file of
                           inputs the path of another one, which a slice may follow;
                           tables: columns, "NAME" or "NAME,NAME" */
  const char *ignore; /**< tables: columns that are left out, "NAME,NAME" */
  enum sl_target_kind targets;
  enum sl_missing missing;
  /** What is held back from the training: a share of the samples, "0.2", chosen by the seed; fold K
   * of N, "fold:K/N", of the samples in the order that the seed draws (cross-validation: each
   * sample is held back in one of the N folds, whose sizes differ by 1 at most); or files like
   * those of the training. NULL: the files' own test set, else "0.1". */
  const char *validation;
  int64_t height, width; /**< pictures: the size that they get; 0: all have one already */
  bool skip_bad;         /**< pictures: leave out those that cannot be decoded */
  /** Values as they are in the files, not normalised: of the inputs, of the targets. Targets that
   * are probabilities (0 or 1 for each of several labels) must stay so. */
  bool raw, raw_targets;
  const char *raw_fields; /**< fields of the targets that stay as they are, "NAME,NAME" */
  /** Samples for answers, not for a training (tables, arrays): all of them, as they are in the
   * files, without targets: each has the target NaN instead. Of the members above only `inputs`
   * counts then. */
  bool inputs_only;
  /** With inputs_only, of a table: the training's columns (sl_model_notes), wherever they stand
   * among others. NULL: all columns, which must be numbers. */
  int column_count;
  const struct sl_column *columns;
};

/** A set as sl_dataset_open opens it, or a file: a table (.csv, .tsv), arrays (.npz, .npy, .h5), a
 * folder of x.npy and y.npy, a folder with a folder of pictures for each class.
 * train: the training part, else what is held back from it. Unless options.raw is set, inputs, and
 * targets that are values, are normalised by means and deviations measured on the training part (of
 * more than 2^26 values on as many, evenly spread, at least 1,024 samples): of each value of a
 * vector, of each channel of an image, of a matrix as a whole. A sample with a value that would
 * then be infinite is refused when it is read. options NULL: all zero.
 * \return SL_IO, SL_BAD_FILE, SL_BAD_SHAPE; SL_BAD_ARGUMENT for an option that the format does not
 * have; SL_UNSUPPORTED without the library that the files need. */
SL_API enum sl_status sl_dataset_read(const char *name, const struct sl_reader_options *options,
                                      bool train, struct sl_dataset **dataset);

/** One thing that sl_dataset_open knows. */
struct sl_dataset_format {
  const char *name;  /**< "digits", "MNIST" */
  const char *about; /**< "grey images of 28x28 pixels, 10 classes" */
  const char *files; /**< files by which a folder is recognised; NULL if it is generated */
  bool generated;    /**< `name` is what sl_dataset_open takes; else it takes a folder or file */
  bool own;          /**< a user's own files: sl_dataset_read's options apply */
};

/** Entry i, from 0; NULL behind the last. */
SL_API const struct sl_dataset_format *sl_dataset_format(int i);

/** The entry by which sl_dataset_open would open `name`; NULL if it would refuse. */
SL_API const struct sl_dataset_format *sl_dataset_detect(const char *name);

/** A dataset of the caller's own values: samples [count, C, H, W] bytes and labels are copied;
 * value = (byte / 255 - mean[c]) / deviation[c] (NULL: 0 and 1).
 * \return SL_BAD_ARGUMENT for a label outside 0 .. classes - 1, or a deviation of 0. */
SL_API enum sl_status sl_dataset_new(const char *name, const struct sl_shape *sample, int64_t count,
                                     int classes, const uint8_t *samples, const int32_t *labels,
                                     const float *mean, const float *deviation,
                                     struct sl_dataset **dataset);

/** The description of a set of floats. The zero value of a member is its default. */
struct sl_dataset_options {
  const char *name;       /**< required; copied, as means and deviations are */
  struct sl_shape sample; /**< of one sample, at most SL_MAX_DIMS - 1 axes; required */
  struct sl_shape target; /**< of one sample's targets, the same; ndim 0: class labels */
  int64_t count;          /**< samples; required */
  int classes;            /**< required without targets, 1 to SL_MAX_CLASSES; else 0 */
  bool missing; /**< NaN targets and labels SL_IGNORE are allowed: they have no loss and no gradient
                   (partly labelled data); false: they are refused */
  /** value = (float - mean[c]) / deviation[c]; NULL: 0 and 1. channels: their number, 1 for all
   * values or one for each entry of the sample's first axis ([features], [C, H, W]). */
  int channels;
  const float *mean, *deviation;
  int target_channels; /**< the same of targets, whose unit predictions get back */
  const float *target_mean, *target_deviation;
  const char *const *class_names; /**< [classes], or NULL; not copied, must outlive the set */
  void (*release)(void *user);    /**< called when the set is freed (NULL: nothing) */
  void *user;
  /** Several inputs and several targets by name: fields, which lie one behind the other in a
   * sample's row of x and of targets; copied. sample and target follow from them and may be left
   * out. Means and deviations are then 1 for all values or one for each value of the row. Targets
   * that are class labels (field.classes) are whole numbers there, or NaN if `missing` allows it.
   */
  const struct sl_row_field *inputs, *targets;
  int input_count, target_count;
};

/** A set of floats: x [count, sample...], and targets [count, target...] or labels [count]; the
 * other is NULL. borrow: they are not copied, and must outlive the set (options.release says when
 * it has gone; it is not called if this function fails).
 * \return SL_BAD_ARGUMENT for a value that is not finite (the message has the sample), a label
 * outside 0 .. classes - 1, an impossible shape, a deviation of 0, or both of targets and labels.
 */
SL_API enum sl_status sl_dataset_floats(const struct sl_dataset_options *options, const float *x,
                                        const float *targets, const int32_t *labels, bool borrow,
                                        struct sl_dataset **dataset);

/** The rows that a program's own dataset fills. */
struct sl_fill {
  void *user;
  int64_t count;
  const int64_t *samples; /**< [count], numbers of the samples, in any order */
  float *x;               /**< [count, sample...], to be written, before normalisation */
  float *targets;         /**< [count, target...]; NULL if the set has labels */
  int32_t *labels;        /**< [count]; NULL if the set has targets */
  int64_t failed;         /**< with a status other than SL_OK: which of the rows failed; -1 (as it
                               is before the call): unknown */
  char message[200];      /**< and why; empty: unknown */
};

/** A dataset of the program's own, which may be larger than memory: `fill` writes the rows that a
 * batch needs. A loader's threads call it: calls overlap if a loader is given several readers (it
 * has one by default), or the set several loaders. Its values must depend on the sample's number
 * only. A failure, a value that it did not write or that is not finite, and a label out of range
 * end the loader's batch, and so sl_trainer_step, with a message that has the sample's number;
 * where a failure does not say which row it was, the numbers of the first samples of the batch. A
 * number that is no status fails as SL_BAD_ARGUMENT.
 * \return SL_BAD_ARGUMENT for an impossible description. */
SL_API enum sl_status sl_dataset_custom(const struct sl_dataset_options *options,
                                        enum sl_status (*fill)(struct sl_fill *rows),
                                        struct sl_dataset **dataset);

/** Means and deviations of values [count, sample...], one for each entry of the first axis
 * (channels = sample->dim[0]) or of all (1), in double precision; NaN is left out. The deviation of
 * equal values is 1, so that they can be normalised. For sl_dataset_options; measure on the
 * training part. \return SL_BAD_ARGUMENT for another number of channels, or a channel whose values
 * are not finite or all missing. */
SL_API enum sl_status sl_measure(const float *values, int64_t count, const struct sl_shape *sample,
                                 int channels, float *mean, float *deviation);

/** A text of tokens 0 .. classes - 1 (copied), as samples of steps tokens each: sample i are tokens
 * i steps, i steps + 1, ...; the label of each is the token after it. What does not fill a sample
 * at the end is left out. \return SL_BAD_ARGUMENT for a token outside 0 .. classes - 1, or too few
 * for one sample. */
SL_API enum sl_status sl_tokens_new(const char *name, const int32_t *tokens, int64_t count,
                                    int64_t steps, int classes, struct sl_dataset **dataset);

/** The integers of a token file, little-endian. */
enum sl_token_type { SL_TOKENS_U16, SL_TOKENS_U32 };

struct sl_token_file_options {
  enum sl_token_type type;
  double from, to; /**< the part of the file, as shares of its tokens from 0 to 1; to 0 means 1 */
  int64_t steps;   /**< tokens of a sample; required */
  int classes;     /**< of the vocabulary; required */
};

/** As sl_tokens_new, of a file of tokens that is mapped into memory, not copied, so it may be
 * larger than memory: integers one after another, as nanoGPT's `.bin`, or behind the 1024-byte
 * header of llm.c (magic 20240520 for u16, 20240801 for u32, version 1, count), which is
 * recognised. A token outside 0 .. classes - 1 is found when its sample is read: the loader's batch
 * then fails with its position. The file must not change meanwhile. \return SL_IO for a file that
 * is missing or unreadable; SL_BAD_FILE for a length that is no multiple of a token's, a header of
 * the other type, of another version or another count than the file has; SL_BAD_ARGUMENT for an
 * impossible part, or too few tokens for one sample. */
SL_API enum sl_status sl_token_file_open(const char *path,
                                         const struct sl_token_file_options *options,
                                         struct sl_dataset **dataset);

/** Writes a token file with llm.c's header, aside, and renames it. \return SL_IO if it cannot be
 * written; SL_BAD_ARGUMENT for a token that the type does not hold, or more than 2^32 - 1. */
SL_API enum sl_status sl_token_file_write(const char *path, enum sl_token_type type,
                                          const int32_t *tokens, int64_t count);

/** All tokens of a file, in a block to free(); type: of a file without a header. \return what
 * sl_token_file_open returns; SL_BAD_FILE for a token that is no int32. */
SL_API enum sl_status sl_token_file_read(const char *path, enum sl_token_type type,
                                         int32_t **tokens, int64_t *count);

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
 * bucket. A sentence is the tokens w1 .. wn up to and with its `end`; the last one may lack it. It
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

/** The set's description, which lives as long as the set. */
SL_API const struct sl_dataset_info *sl_dataset_info(const struct sl_dataset *dataset);

/** Sample i as floats [sample...] (normalised) and its label. \return SL_UNSUPPORTED for a set with
 * targets, or of tokens; SL_BAD_ARGUMENT for a sample that is not there, and for a value that is
 * infinite once it is normalised. */
SL_API enum sl_status sl_dataset_get(const struct sl_dataset *dataset, int64_t i, float *values,
                                     int32_t *label);

/** Sample i as floats [sample...] and its targets [target...], both normalised. \return
 * SL_UNSUPPORTED for a set with labels; SL_BAD_ARGUMENT as sl_dataset_get. */
SL_API enum sl_status sl_dataset_get_targets(const struct sl_dataset *dataset, int64_t i,
                                             float *values, float *targets);

/** The number, from 0, that sample i has in the files that it comes from: the training part and
 * what is held back each have some of a table's rows. \return -1 if there is no sample i, and for
 * NULL. */
SL_API int64_t sl_dataset_number(const struct sl_dataset *dataset, int64_t i);

/** Weights of the classes, [info.classes], for a loss that is to see rare classes as often as
 * frequent ones: all labels / (number of classes that occur x labels of this class), as
 * scikit-learn's class_weight="balanced"; 0 of a class that does not occur. Labels SL_IGNORE do not
 * count. For sl_loss.class_weights. \return SL_BAD_ARGUMENT for a set with targets; what the set's
 * samples return. */
SL_API enum sl_status sl_class_weights(const struct sl_dataset *dataset, float *weights);

/** Free the loaders of the set before. NULL is legal. */
SL_API void sl_dataset_free(struct sl_dataset *dataset);

/** \defgroup loader Loaders
 * Threads of the loader's own fill batches ahead of the training. */
struct sl_loader;

struct sl_loader_options {
  int64_t batch;   /**< samples a batch; required */
  uint64_t seed;   /**< of the order and the augmentation */
  bool contiguous; /**< tokens: each row of a batch goes on where it ended in the batch before; the
                      text is cut into batch x num_parts runs, and what is over is left out */
  bool shuffle;    /**< a new order every epoch, from (seed, epoch) only */
  int shift;       /**< augmentation: shift by up to this many pixels, 0 none; edges become 0 */
  bool flip;       /**< augmentation: mirror every second sample, left to right */
  int64_t part_index; /**< this loader reads part part_index of num_parts; */
  int64_t num_parts;  /**< 0 means 1. All parts together are the set, each sample once an epoch. */
  int slots;          /**< batches in memory at once, at least 2; 0 means 4, or readers + 2, and up
                         to 16 of small batches, 4 MB together */
  int readers;        /**< threads that fill batches, 1 to 256; 0 means 1, or 2 on a machine with 8
                         processors or more, but 1 for sl_dataset_custom. They change no value. */
  /** Images are larger than what the model sees: a batch has a window [C, crop_h, crop_w] of each,
   * the one in the middle, or (crop_random) augmentation: one at random. 0: the whole image.
   * sl_loader_sample is the shape of a window. Shifts and mirroring are of windows. */
  int64_t crop_h, crop_w;
  bool crop_random;
  /** Augmentation of the colours of pictures whose values are from 0 to 1 before they are
   * normalised, of 1 channel (grey) or 3 (red, green, blue), by the formulas of torchvision's
   * ColorJitter, in a random order: factors of brightness, of contrast (about the mean of the
   * picture's grey) and of saturation (about the pixel's grey), each drawn from max(0, 1 -
   * strength) to 1 + strength; and a turn of the hue, from -hue to hue of its circle. 0: none;
   * strengths to 10, hue to 0.5. Grey has neither saturation nor hue. */
  float brightness, contrast, saturation, hue;
};

/** One batch. The last of an epoch may be short: then samples repeat from its first one, with the
 * label SL_IGNORE, which counts neither in the loss nor in the accuracy, or with targets NaN,
 * which do the same.
 *
 * Of sentences (sl_sentences_new), a batch is of one bucket, and the last one of each may be short.
 * Behind a sentence's end stand tokens `end` with the label SL_IGNORE. Unshuffled, buckets come in
 * ascending order, samples in the text's; shuffled, so are the samples of each bucket, and the
 * batches of all. All parts have the same sequence of buckets; one without samples left in a bucket
 * has valid 0. */
#define SL_IGNORE (-1)

struct sl_batch {
  const float *x;        /**< [batch, sl_loader_sample...]; NULL if the samples are tokens */
  const int32_t *tokens; /**< [batch, T], or NULL; T = info.sample.dim[0] whatever steps is */
  const int32_t *labels; /**< [batch], or [batch, T]; NULL if the set has targets */
  const float *targets;  /**< [batch, target...]; NULL if the set has labels */
  int64_t batch;         /**< rows, always the loader's batch */
  int64_t steps;         /**< of tokens: time steps of this batch, its bucket's length (else T), 0
                            for images; places behind them are padding */
  int64_t valid;         /**< labels, or single values of targets, that count */
  int64_t valid_all;     /**< the same of all parts' batches of this index together; of a set with
                            `missing` and several parts: that all values would give */
  int64_t epoch;         /**< from 0 */
  int64_t index;         /**< of the batch in its epoch, from 0 */
  bool last;             /**< last of its epoch */
  int slot;              /**< to be handed back by sl_loader_recycle */
};

/** \return SL_BAD_ARGUMENT for a batch that is not positive, a part without samples (of sentences:
 * more parts than samples in the fullest bucket), sentences to be contiguous, and augmentation that
 * the samples do not allow. A value that is not from 0 to 1 where colours are to change ends the
 * batch with SL_BAD_ARGUMENT. */
SL_API enum sl_status sl_loader_new(const struct sl_dataset *dataset,
                                    const struct sl_loader_options *options,
                                    struct sl_loader **loader);

/** The set whose samples it gives, and the rows of each batch. */
SL_API const struct sl_dataset *sl_loader_dataset(const struct sl_loader *loader);
SL_API int64_t sl_loader_batch(const struct sl_loader *loader);

/** The shape of a sample in the batches: info.sample, or the window of it. */
SL_API const struct sl_shape *sl_loader_sample(const struct sl_loader *loader);

/** The options in force, defaults filled in. */
SL_API const struct sl_loader_options *sl_loader_settings(const struct sl_loader *loader);

/** Batches an epoch, of all buckets. */
SL_API int64_t sl_loader_length(const struct sl_loader *loader);

/** Batches in memory at once: slots are numbered from 0 to this - 1. */
SL_API int sl_loader_slots(const struct sl_loader *loader);

/** The memory of one slot, fixed for the loader's life (so that it can be registered and pinned);
 * NULL for a slot that does not exist. */
SL_API void sl_loader_slot(const struct sl_loader *loader, int slot, float **x, int32_t **labels);
/** \return [batch, target...]; NULL if the set has labels, or there is no such slot;
 * sl_loader_slot's labels are NULL if the set has targets. */
SL_API float *sl_loader_slot_targets(const struct sl_loader *loader, int slot);

/** The place of the batch that sl_loader_next hands out next. */
SL_API void sl_loader_tell(struct sl_loader *loader, int64_t *epoch, int64_t *index);

/** Wait for the next batch (epoch after epoch, without end). Each one is handed out once; at most
 * slots - 1 may be out at a time. \return SL_BAD_ARGUMENT if all slots are out; what a dataset of
 * the program's own returned: this batch cannot be had, and no later one but by a seek. */
SL_API enum sl_status sl_loader_next(struct sl_loader *loader, struct sl_batch *batch);

/** The slot's memory may be filled again. */
SL_API void sl_loader_recycle(struct sl_loader *loader, int slot);

/** Start over at the first batch of an epoch; every slot must have been recycled. */
SL_API enum sl_status sl_loader_seek(struct sl_loader *loader, int64_t epoch);

/** The same at batch `index` of an epoch, from 0: the batches are those that an uninterrupted run
 * would get from there on. \return SL_BAD_ARGUMENT for an epoch or a batch that does not exist, or
 * if batches are still out. */
SL_API enum sl_status sl_loader_seek_batch(struct sl_loader *loader, int64_t epoch, int64_t index);

/** Not while another thread uses the loader; afterwards the dataset may be freed, too. Trainers
 * need neither any more, except for sl_trainer_save, which describes the data of the last step.
 * They still report steps of a freed loader that are pending; but the message about a label or
 * target that the loss does not take names no sample then. A trainer keeps the memory of the
 * batches until its next step or evaluation, or sl_trainer_free. NULL is legal. */
SL_API void sl_loader_free(struct sl_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
