/* The safetensors format: reader and writer. The header is a JSON object
 *   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__":
 * {"key": "text"}} Nothing in it is trusted: a file may come from anywhere. */
#include "core/base/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/json.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are read and written as they lie in memory: little-endian hosts only"
#endif

#define METADATA "__metadata__"
#define PREFIX 8                          /* bytes of the header's length */
#define MAX_HEADER (100u * 1000u * 1000u) /* as in the reference implementation */
#define MAX_FILE ((size_t)1 << 40)

struct sl__safetensors {
  char *path;
  json_t *header;             /* holds the names and types that entries point to */
  uint8_t *owned;             /* the file's bytes, where they are ours */
  struct sl__mapping mapping; /* or where they are mapped */
  const uint8_t *data;        /* behind the header */
  size_t data_size, count;
  struct sl__safetensors_entry *entries;
};

/* Bytes of one value; 0 for a type that the format does not have. */
static size_t dtype_size(const char *dtype) {
  static const struct {
    const char *name;
    size_t size;
  } types[] = {{"F32", 4},     {"F16", 2},     {"BF16", 2},    {"F64", 8}, {"I64", 8}, {"I32", 4},
               {"I16", 2},     {"I8", 1},      {"U64", 8},     {"U32", 4}, {"U16", 2}, {"U8", 1},
               {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8}, {"BOOL", 1}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, dtype) == 0) return types[i].size;
  return 0;
}

/* ---- reading ---- */

/* A name from the file for a message: short, and printable on any terminal. */
static const char *shown(const char *name, char text[64]) {
  size_t i = 0;
  for (; name[i] && i < 60; i++)
    text[i] = (unsigned char)name[i] < ' ' || name[i] == 127 ? '?' : name[i];
  if (name[i]) memcpy(text + 57, "...", 3);
  text[i] = '\0';
  return text;
}

static enum sl_status fail_entry(const struct sl__safetensors *file, const char *name,
                                 const char *what) {
  char text[64];
  return sl__fail(SL_BAD_FILE, "%s: tensor \"%s\" %s; the file is damaged or of a newer format",
                  file->path, shown(name, text), what);
}

/* The header's shape; *bytes of the whole tensor, from a product that may not overflow. */
static enum sl_status parse_shape(const struct sl__safetensors *file, const char *name,
                                  const json_t *list, struct sl__safetensors_entry *entry,
                                  size_t *bytes) {
  size_t ndim = json_array_size(list);
  if (!json_is_array(list)) return fail_entry(file, name, "has no list \"shape\"");
  entry->dimensions = ndim;
  entry->shape.ndim = ndim > SL_MAX_DIMS ? SL_MAX_DIMS : (int)ndim;
  for (size_t i = 0; i < ndim; i++) {
    const json_t *number = json_array_get(list, i);
    json_int_t dim = json_integer_value(number);
    if (!json_is_integer(number) || dim < 0)
      return fail_entry(file, name, "has a dimension that is no natural number");
    if (i < SL_MAX_DIMS) entry->shape.dim[i] = dim;
    if (__builtin_mul_overflow(*bytes, (size_t)dim, bytes))
      return fail_entry(file, name, "has a shape too large for any memory");
  }
  return SL_OK;
}

static enum sl_status parse_offsets(const struct sl__safetensors *file, const char *name,
                                    const json_t *list, size_t *begin, size_t *end) {
  const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
  if (json_array_size(list) != 2 || !json_is_integer(first) || !json_is_integer(second))
    return fail_entry(file, name, "has no pair \"data_offsets\"");
  json_int_t from = json_integer_value(first), to = json_integer_value(second);
  if (from < 0 || to < from) return fail_entry(file, name, "has data_offsets that run backwards");
  if ((uint64_t)to > file->data_size)
    return fail_entry(file, name, "lies beyond the end of the file (was the download complete?)");
  *begin = (size_t)from;
  *end = (size_t)to;
  return SL_OK;
}

static enum sl_status parse_entry(const struct sl__safetensors *file, const char *name,
                                  const json_t *value, struct sl__safetensors_entry *entry) {
  enum sl_status status;
  size_t begin = 0, end = 0;
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  if (!dtype) return fail_entry(file, name, "has no \"dtype\"");
  size_t size = dtype_size(dtype), bytes = size ? size : 1;
  SL__TRY(parse_shape(file, name, json_object_get(value, "shape"), entry, &bytes));
  SL__TRY(parse_offsets(file, name, json_object_get(value, "data_offsets"), &begin, &end));
  /* a value of an unknown type has a bit at least */
  if (size ? end - begin != bytes : bytes / 8 > end - begin)
    SL__TRY(fail_entry(file, name, "has a shape that differs from its size"));
  if (entry->dimensions > SL_MAX_DIMS)
    entry->shape = SL_SHAPE((int64_t)(bytes / (size ? size : 1)));
  entry->name = name;
  entry->dtype = dtype;
  entry->data = file->data + begin;
  entry->bytes = end - begin;
out:
  return status;
}

/* By place in the file; an empty tensor before the one that begins at the same byte. */
static int by_place(const void *a, const void *b) {
  const struct sl__safetensors_entry *const *one = a, *const *other = b;
  const char *p = (*one)->data, *q = (*other)->data;
  if (p != q) return p < q ? -1 : 1;
  return ((*one)->bytes > (*other)->bytes) - ((*one)->bytes < (*other)->bytes);
}

/* Sorted by place, every tensor begins where the one before it ends. */
static enum sl_status check_cover(const struct sl__safetensors *file) {
  const struct sl__safetensors_entry **sorted =
      sl__alloc(file->count, sizeof *sorted, "safetensors entries");
  enum sl_status status = SL_OK;
  size_t end = 0;
  if (!sorted) return SL_NO_MEMORY;
  for (size_t i = 0; i < file->count; i++) sorted[i] = &file->entries[i];
  qsort(sorted, file->count, sizeof *sorted, by_place);
  for (size_t i = 0; i < file->count && status == SL_OK; i++) {
    size_t begin = (size_t)((const uint8_t *)sorted[i]->data - file->data);
    if (begin < end) status = fail_entry(file, sorted[i]->name, "overlaps another");
    if (begin > end) status = fail_entry(file, sorted[i]->name, "has unused bytes before it");
    end = begin + sorted[i]->bytes;
  }
  free(sorted);
  if (status == SL_OK && end != file->data_size)
    status = sl__fail(SL_BAD_FILE, "%s: %zu bytes too many at the end", file->path,
                      file->data_size - end);
  return status;
}

static enum sl_status check_metadata(const struct sl__safetensors *file, const json_t *value) {
  const char *key;
  const json_t *text;
  if (!json_is_object(value))
    return sl__fail(SL_BAD_FILE, "%s: " METADATA " is not an object", file->path);
  json_object_foreach((json_t *)value, key, text) {
    if (!json_is_string(text))
      return sl__fail(SL_BAD_FILE, "%s: " METADATA " holds something else than text", file->path);
  }
  return SL_OK;
}

static enum sl_status parse_entries(struct sl__safetensors *file) {
  enum sl_status status = SL_OK;
  const char *name;
  json_t *value;
  file->entries = sl__alloc(json_object_size(file->header), sizeof *file->entries, "safetensors");
  if (!file->entries) return SL_NO_MEMORY;
  json_object_foreach(file->header, name, value) {
    if (strcmp(name, METADATA) == 0)
      status = check_metadata(file, value);
    else
      status = parse_entry(file, name, value, &file->entries[file->count++]);
    if (status != SL_OK) return status;
  }
  return check_cover(file);
}

/* The likely origin of a zip archive. */
static const char torch_save[] =
    "torch.save wrote it; in Python, safetensors.torch.save_file(torch.load(OLD), NEW) makes one "
    "of its tensors";

/* The JSON text between the length and the data. */
static enum sl_status parse_header(struct sl__safetensors *file, const uint8_t *bytes,
                                   size_t size) {
  uint64_t length;
  json_error_t error;
  if (size < PREFIX)
    return sl__fail(SL_BAD_FILE, "%s: %zu bytes are too short for a safetensors file", file->path,
                    size);
  memcpy(&length, bytes, PREFIX);
  if (length > MAX_HEADER || (size > PREFIX && length && bytes[PREFIX] != '{'))
    return sl__fail(SL_BAD_FILE, "%s: is not a safetensors file (%s)", file->path,
                    memcmp(bytes, "PK\003\004", 4) ? "no JSON header" : torch_save);
  if (length > size - PREFIX)
    return sl__fail(SL_BAD_FILE,
                    "%s: cut short in its header (%zu of %llu bytes); was the download complete?",
                    file->path, size - PREFIX, (unsigned long long)length);
  file->data = bytes + PREFIX + length;
  file->data_size = size - PREFIX - (size_t)length;
  file->header = sl__json_load(bytes + PREFIX, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (!file->header && json_error_code(&error) == json_error_out_of_memory)
    return sl__fail(SL_NO_MEMORY, "%s: no memory for the header", file->path);
  if (!file->header) {
    char text[64];
    return sl__fail(SL_BAD_FILE, "%s: damaged header at byte %d: %s", file->path,
                    PREFIX + error.position, shown(error.text, text));
  }
  return SL_OK;
}

enum sl_status sl__safetensors_parse(const char *path, const uint8_t *bytes, size_t size,
                                     struct sl__safetensors **result) {
  enum sl_status status;
  struct sl__safetensors *file = sl__alloc(1, sizeof *file, "a safetensors file");
  if (!file) return SL_NO_MEMORY;
  file->path = sl__strdup(path);
  if (!file->path) SL__TRY(SL_NO_MEMORY);
  SL__TRY(parse_header(file, bytes, size));
  SL__TRY(parse_entries(file));
  *result = file;
  return SL_OK;
out:
  sl__safetensors_close(file);
  return status;
}

enum sl_status sl__safetensors_open(const char *path, struct sl__safetensors **file) {
  uint8_t *bytes;
  size_t size;
  enum sl_status status = sl__file_read_plain(path, MAX_FILE, &bytes, &size);
  if (status != SL_OK) return status;
  status = sl__safetensors_parse(path, bytes, size, file);
  if (status == SL_OK)
    (*file)->owned = bytes;
  else
    free(bytes);
  return status;
}

enum sl_status sl__safetensors_map(const char *path, struct sl__safetensors **file) {
  struct sl__mapping mapping = {0};
  enum sl_status status = sl__file_map(path, &mapping);
  if (status != SL_OK) return status;
  status = sl__safetensors_parse(path, mapping.bytes, mapping.size, file);
  if (status == SL_OK)
    (*file)->mapping = mapping;
  else
    sl__file_unmap(&mapping);
  return status;
}

void sl__safetensors_close(struct sl__safetensors *file) {
  if (!file) return;
  sl__file_unmap(&file->mapping);
  json_decref(file->header);
  free(file->entries);
  free(file->owned);
  free(file->path);
  free(file);
}

size_t sl__safetensors_count(const struct sl__safetensors *file) { return file->count; }

const struct sl__safetensors_entry *sl__safetensors_at(const struct sl__safetensors *file,
                                                       size_t i) {
  return &file->entries[i];
}

const struct sl__safetensors_entry *sl__safetensors_find(const struct sl__safetensors *file,
                                                         const char *name) {
  for (size_t i = 0; i < file->count; i++)
    if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
  return NULL;
}

const char *sl__safetensors_path(const struct sl__safetensors *file) { return file->path; }

const char *sl__safetensors_metadata(const struct sl__safetensors *file, const char *key) {
  return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}

const void *sl__safetensors_data(const struct sl__safetensors *file, size_t *size) {
  *size = file->data_size;
  return file->data;
}

/* ---- values as f32; the data need not be aligned ---- */

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static float float_of_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
  uint32_t fraction = half & 0x3ff;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) { /* subnormal: fraction times 2^-24, exact in f32 */
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
  }
  return float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

static void floats_of_halves(const uint8_t *data, size_t count, bool brain, float *values) {
  for (size_t i = 0; i < count; i++) {
    uint16_t bits;
    memcpy(&bits, data + i * sizeof bits, sizeof bits);
    values[i] = brain ? float_of_bits((uint32_t)bits << 16) : float_of_half(bits);
  }
}

static void floats_of_doubles(const uint8_t *data, size_t count, float *values) {
  for (size_t i = 0; i < count; i++) {
    double value;
    memcpy(&value, data + i * sizeof value, sizeof value);
    values[i] = (float)value;
  }
}

/* The bytes of some values; of a mapped file a copy in `room`, made by calls of the system, since
 * the use of bytes that it loses meanwhile would end the process. */
static enum sl_status take_bytes(const struct sl__safetensors *file, size_t size, uint8_t *room,
                                 const uint8_t **bytes) {
  const uint8_t *from = *bytes;
  if (!file->mapping.bytes) return SL_OK;
  *bytes = room;
  return sl__file_map_read(file->path, &file->mapping, from, size, room);
}

/* All values of a tensor of floats. */
static enum sl_status read_floats(const struct sl__safetensors *file,
                                  const struct sl__safetensors_entry *entry, float *values) {
  uint8_t room[1 << 14];
  size_t each = dtype_size(entry->dtype), piece;
  for (size_t at = 0; at < entry->bytes; at += piece, values += piece / each) {
    const uint8_t *bytes = (const uint8_t *)entry->data + at;
    piece = entry->bytes - at < sizeof room ? entry->bytes - at : sizeof room;
    enum sl_status status = take_bytes(file, piece, room, &bytes);
    if (status != SL_OK) return status;
    if (each == sizeof(float))
      memcpy(values, bytes, piece);
    else if (each == sizeof(double))
      floats_of_doubles(bytes, piece / each, values);
    else
      floats_of_halves(bytes, piece / each, entry->dtype[0] == 'B', values);
  }
  return SL_OK;
}

static bool is_of_floats(const struct sl__safetensors_entry *entry) {
  static const char *const types[] = {"F32", "F64", "F16", "BF16"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(entry->dtype, types[i]) == 0) return true;
  return false;
}

enum sl_status sl__safetensors_check_read(const struct sl__safetensors *file,
                                          const struct sl__safetensors_entry *entry) {
  char name[64], dtype[64];
  if (entry->dimensions > SL_MAX_DIMS)
    return sl__fail(SL_UNSUPPORTED, "%s: tensor \"%s\" has %zu dimensions; at most %d are read",
                    file->path, shown(entry->name, name), entry->dimensions, SL_MAX_DIMS);
  if (!dtype_size(entry->dtype))
    return sl__fail(
        SL_UNSUPPORTED,
        "%s: tensor \"%s\" is of type %s, which is not known; save it as F32, F16, BF16 "
        "or F64",
        file->path, shown(entry->name, name), shown(entry->dtype, dtype));
  return SL_OK;
}

enum sl_status sl__safetensors_floats(const struct sl__safetensors *file, const char *name,
                                      const struct sl_shape *shape, float *values) {
  const struct sl__safetensors_entry *entry = sl__safetensors_find(file, name);
  char has[96], wanted[96];
  if (!entry)
    return sl__fail(SL_BAD_FILE, "%s: has no tensor \"%s\"; is it of another model?", file->path,
                    name);
  enum sl_status status = sl__safetensors_check_read(file, entry);
  if (status != SL_OK) return status;
  if (!sl_shape_equal(&entry->shape, shape))
    return sl__fail(SL_BAD_SHAPE,
                    "%s: tensor \"%s\" is %s, the model needs %s; was it saved from a model of "
                    "another size?",
                    file->path, name, sl_shape_text(&entry->shape, has, sizeof has),
                    sl_shape_text(shape, wanted, sizeof wanted));
  if (!is_of_floats(entry))
    return sl__fail(SL_BAD_FILE, "%s: tensor \"%s\" is of type %s, not F32, F64, F16 or BF16",
                    file->path, name, entry->dtype);
  return read_floats(file, entry, values);
}

/* ---- writing ---- */

static enum sl_status check_written(const char *path, const struct sl__safetensors_entry *entry) {
  size_t bytes = dtype_size(entry->dtype);
  if (bytes == 0 || strcmp(entry->name, METADATA) == 0 || entry->shape.ndim < 0 ||
      entry->shape.ndim > SL_MAX_DIMS)
    return sl__fail(SL_BAD_ARGUMENT, "%s: tensor \"%s\" of type %s cannot be written", path,
                    entry->name, entry->dtype);
  for (int i = 0; i < entry->shape.ndim; i++)
    if (entry->shape.dim[i] < 0 ||
        __builtin_mul_overflow(bytes, (size_t)entry->shape.dim[i], &bytes))
      return sl__fail(SL_BAD_SHAPE, "%s: tensor \"%s\" has an impossible shape", path, entry->name);
  if (bytes != entry->bytes)
    return sl__fail(SL_BAD_SHAPE, "%s: tensor \"%s\" has %zu bytes, its shape says %zu", path,
                    entry->name, entry->bytes, bytes);
  return SL_OK;
}

/* Data go by falling size of their values, else in the given order: no hole may align them, and
 * readers that map the file need every value on a multiple of its size. */
static void place_data(const struct sl__safetensors_entry *entries, size_t count, size_t *places,
                       size_t *order) {
  size_t filled = 0, end = 0;
  for (size_t size = 8; size > 0; size /= 2)
    for (size_t i = 0; i < count; i++) {
      if (dtype_size(entries[i].dtype) != size) continue;
      order[filled++] = i;
      places[i] = end;
      end += entries[i].bytes;
    }
}

/* {"dtype": ..., "shape": ..., "data_offsets": ...}; NULL without memory. */
static json_t *entry_json(const struct sl__safetensors_entry *entry, size_t begin) {
  json_t *shape = json_array();
  for (int i = 0; i < entry->shape.ndim; i++)
    sl__json_append(&shape, json_integer(entry->shape.dim[i]));
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", entry->dtype, "shape", shape, "data_offsets",
                   (json_int_t)begin, (json_int_t)(begin + entry->bytes));
}

static enum sl_status fail_name(const char *path, const char *name) {
  return sl__fail(SL_BAD_ARGUMENT, "%s: the name \"%s\" comes twice or is not UTF-8", path, name);
}

static enum sl_status metadata_json(const char *path, const char *const *metadata, json_t *header) {
  json_t *object = json_object();
  for (; metadata && metadata[0]; metadata += 2)
    if (json_object_set_new(object, metadata[0], json_string(metadata[1])) != 0) {
      json_decref(object);
      return fail_name(path, metadata[0]);
    }
  if (json_object_size(object) == 0) {
    json_decref(object);
    return SL_OK;
  }
  if (json_object_set_new(header, METADATA, object) != 0)
    return sl__fail(SL_NO_MEMORY, "%s: no memory for the header", path);
  return SL_OK;
}

/* The header's text, padded with blanks so that the data begin on a multiple of 8. */
static enum sl_status header_text(const char *path, const struct sl__safetensors_entry *entries,
                                  size_t count, const size_t *places, const char *const *metadata,
                                  char **text, size_t *length) {
  enum sl_status status;
  json_t *header = json_object();
  SL__TRY(metadata_json(path, metadata, header));
  for (size_t i = 0; i < count; i++) {
    SL__TRY(check_written(path, &entries[i]));
    if (json_object_get(header, entries[i].name) ||
        json_object_set_new(header, entries[i].name, entry_json(&entries[i], places[i])) != 0)
      SL__TRY(fail_name(path, entries[i].name));
  }
  size_t size = json_dumpb(header, NULL, 0, JSON_COMPACT);
  *length = (size + 7) / 8 * 8;
  *text = size ? sl__alloc(*length, 1, "a safetensors header") : NULL;
  if (!*text) SL__TRY(sl__fail(SL_NO_MEMORY, "%s: no memory for the header", path));
  memset(*text, ' ', *length);
  if (json_dumpb(header, *text, size, JSON_COMPACT) != size)
    status = sl__fail(SL_NO_MEMORY, "%s: no memory for the header", path);
out:
  json_decref(header);
  return status;
}

enum sl_status sl__safetensors_write(const char *path, const struct sl__safetensors_entry *entries,
                                     size_t count, const char *const *metadata,
                                     struct sl__file_sum *sum) {
  enum sl_status status;
  struct sl__file *file = NULL;
  char *text = NULL;
  size_t length = 0;
  size_t *places = sl__alloc(count * 2, sizeof *places, "safetensors places");
  if (!places) SL__TRY(SL_NO_MEMORY);
  size_t *order = places + count;
  place_data(entries, count, places, order);
  SL__TRY(header_text(path, entries, count, places, metadata, &text, &length));
  SL__TRY(sl__file_create(path, &file));
  uint64_t prefix = length;
  sl__file_write(file, &prefix, PREFIX);
  sl__file_write(file, text, length);
  for (size_t i = 0; i < count; i++)
    sl__file_write(file, entries[order[i]].data, entries[order[i]].bytes);
  status = sl__file_commit(file, sum);
out:
  free(text);
  free(places);
  return status;
}
