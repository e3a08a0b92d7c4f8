/* Generated shapes in CIFAR-10's format: ten outlines at random place, size, angle and aspect, with
 * one random texture before another, and noise. Colours and textures are drawn before the class and
 * do not depend on it. Numbers come from Philox by (seed, set, sample): sample i does not depend on
 * other samples. */
#include <math.h>

#include "core/base/error.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "data/source.h"

#define SIDE 32
#define CHANNELS 3
#define PLANE (SIDE * SIDE)
#define TRAINING_COUNT 10000
#define TEST_COUNT 2000
#define TURN 6.2831853f
#define FINE 3 /* test points of a pixel in each direction */

enum shape { DISC, SQUARE, TRIANGLE, STAR, CROSS, RING, CRESCENT, ARROW, HEART, BOLT, SHAPES };

/* ---- outlines: x to the right, y down, most of them within the unit circle ---- */

#define MOST_CORNERS 12
struct polygon {
  int corners;
  float at[MOST_CORNERS][2];
};

static const struct polygon polygons[SHAPES] = {
    [SQUARE] = {4, {{-.8f, -.8f}, {.8f, -.8f}, {.8f, .8f}, {-.8f, .8f}}},
    [TRIANGLE] = {3, {{0, -1}, {.95f, .65f}, {-.95f, .65f}}},
    [STAR] = {10,
              {{0, -1},
               {.247f, -.34f},
               {.951f, -.309f},
               {.399f, .13f},
               {.588f, .809f},
               {0, .42f},
               {-.588f, .809f},
               {-.399f, .13f},
               {-.951f, -.309f},
               {-.247f, -.34f}}},
    [CROSS] = {12,
               {{-.3f, -1},
                {.3f, -1},
                {.3f, -.3f},
                {1, -.3f},
                {1, .3f},
                {.3f, .3f},
                {.3f, 1},
                {-.3f, 1},
                {-.3f, .3f},
                {-1, .3f},
                {-1, -.3f},
                {-.3f, -.3f}}},
    [ARROW] =
        {7, {{-1, -.22f}, {.1f, -.22f}, {.1f, -.7f}, {1, 0}, {.1f, .7f}, {.1f, .22f}, {-1, .22f}}},
    [BOLT] = {6, {{.3f, -1}, {-.6f, .2f}, {-.05f, .2f}, {-.3f, 1}, {.6f, -.25f}, {.05f, -.25f}}},
};

/* Inside a polygon, a ray to the right crosses an odd number of edges. */
static bool is_in_polygon(const struct polygon *polygon, float x, float y) {
  bool in = false;
  const float *a = polygon->at[polygon->corners - 1];
  for (int i = 0; i < polygon->corners; i++) {
    const float *b = polygon->at[i];
    if ((a[1] > y) != (b[1] > y) && x < a[0] + (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1])) in = !in;
    a = b;
  }
  return in;
}

static bool is_in(enum shape shape, float x, float y) {
  float square = x * x + y * y;
  switch (shape) {
    case DISC: return square < 1;
    case RING: return square < 1 && square > .3f;
    case CRESCENT: return square < 1 && (x - .5f) * (x - .5f) + y * y > .6f;
    case HEART: { /* (x^2 + y^2 - 1)^3 < x^2 y^3, y up */
      float u = 1.2f * x, v = .1f - 1.2f * y, curve = u * u + v * v - 1;
      return curve * curve * curve < u * u * v * v * v;
    }
    default: return is_in_polygon(&polygons[shape], x, y);
  }
}

/* ---- position, size and angle ---- */

struct pose {
  float x, y, reach;    /* centre, and largest distance of an outline from it, in pixels */
  float xx, xy, yx, yy; /* map from pixels relative to the centre to the outline's coordinates */
};

static struct pose draw_pose(struct sl__source *random) {
  struct pose pose;
  float size = sl__between(random, 8, 14), stretch = sl__between(random, .75f, 1);
  float along = sl__between(random, 0, TURN), turn = sl__between(random, 0, TURN);
  float room = SIDE / 2.0f - .8f * size; /* a corner may lie outside the image */
  float c = cosf(along), s = sinf(along), ct = cosf(turn), st = sinf(turn);
  pose.x = SIDE / 2.0f + sl__between(random, -room, room);
  pose.y = SIDE / 2.0f + sl__between(random, -room, room);
  pose.reach = 1.2f * size;
  /* stretched in a random direction, then rotated */
  float wide = 1 / size, narrow = 1 / (size * stretch);
  float xx = wide * c * c + narrow * s * s, xy = (wide - narrow) * c * s;
  float yy = wide * s * s + narrow * c * c;
  pose.xx = ct * xx - st * xy;
  pose.xy = ct * xy - st * yy;
  pose.yx = st * xx + ct * xy;
  pose.yy = st * xy + ct * yy;
  return pose;
}

/* The part of a pixel that the shape covers, 0 to 1. */
static float cover(enum shape shape, const struct pose *pose, int x, int y) {
  float px = (float)x - pose->x, py = (float)y - pose->y;
  int hits = 0;
  if (px * px + py * py > (pose->reach + 2) * (pose->reach + 2)) return 0;
  for (int i = 0; i < FINE * FINE; i++) {
    float fx = px + ((float)(i % FINE) + .5f) / FINE, fy = py + ((float)(i / FINE) + .5f) / FINE;
    hits += is_in(shape, pose->xx * fx + pose->xy * fy, pose->yx * fx + pose->yy * fy);
  }
  return (float)hits / (FINE * FINE);
}

/* ---- textures ---- */

enum pattern { PLAIN, STRIPES, CHECKS, DOTS, WAVES, PATTERNS };

struct texture {
  enum pattern pattern;
  float colour[2][CHANNELS];
  float along, across, phase; /* angles for each pixel */
};

static struct texture draw_texture(struct sl__source *random) {
  struct texture texture;
  texture.pattern = (enum pattern)sl__between(random, 0, PATTERNS);
  float frequency = TURN / sl__between(random, 3, 12), turn = sl__between(random, 0, TURN);
  texture.along = frequency * cosf(turn);
  texture.across = frequency * sinf(turn);
  texture.phase = sl__between(random, 0, TURN);
  for (int c = 0; c < CHANNELS; c++) {
    texture.colour[0][c] = sl__between(random, 0, 255);
    texture.colour[1][c] = sl__clamp(texture.colour[0][c] + sl__between(random, -50, 50), 0, 255);
  }
  return texture;
}

/* Difference of two textures' colours, summed over the channels: the shape must be visible. */
static float contrast(const struct texture *a, const struct texture *b) {
  float sum = 0;
  for (int c = 0; c < CHANNELS; c++)
    sum += fabsf(a->colour[0][c] + a->colour[1][c] - b->colour[0][c] - b->colour[1][c]) / 2;
  return sum;
}

/* The share of the second colour in a pixel, 0 to 1. */
static float mix(const struct texture *texture, int x, int y) {
  float u = texture->along * (float)x + texture->across * (float)y + texture->phase;
  float v = texture->across * (float)x - texture->along * (float)y + texture->phase;
  switch (texture->pattern) {
    case STRIPES: return .5f + .5f * sinf(u);
    case CHECKS: return sinf(u) * sinf(v) > 0 ? 1 : 0;
    case DOTS: return cosf(u) + cosf(v) > .8f ? 1 : 0;
    case WAVES: return .5f + .5f * sinf(u + 1.5f * sinf(v));
    default: return 0;
  }
}

/* Blends the texture into a pixel with weight `share`. */
static void lay(const struct texture *texture, float share, int x, int y, float pixel[CHANNELS]) {
  float second = mix(texture, x, y);
  for (int c = 0; c < CHANNELS; c++) {
    float value = texture->colour[0][c] + second * (texture->colour[1][c] - texture->colour[0][c]);
    pixel[c] += share * (value - pixel[c]);
  }
}

/* ---- a sample ---- */

static void add_noise(float *values, struct sl__source *random, uint8_t *pixels) {
  float noise = sl__between(random, 2, 10) / SL__BELL_DEVIATION;
  uint64_t first = (random->next + 3) / 4; /* from here on whole blocks of four numbers */
  for (int i = 0; i < CHANNELS * PLANE; i += 4) {
    struct sl__random4 r = sl__philox(random->seed, random->stream, first + (uint64_t)i / 4);
    for (int j = 0; j < 4; j++) {
      float value = values[i + j] + noise * (float)sl__bell(r.v[j]);
      pixels[i + j] = (uint8_t)sl__clamp(value + .5f, 0, 255);
    }
  }
}

static int32_t draw_shape(uint64_t seed, bool train, int64_t i, uint8_t *pixels) {
  enum { LEAST_CONTRAST = 200, TRIES = 16 };
  struct sl__source random = sl__source(SL__SOURCE_SHAPES, seed, train, i);
  float values[CHANNELS * PLANE];
  struct texture back = draw_texture(&random), front = draw_texture(&random);
  for (int n = 0; n < TRIES && contrast(&front, &back) < LEAST_CONTRAST; n++)
    front = draw_texture(&random);
  enum shape shape = (enum shape)sl__between(&random, 0, SHAPES);
  if (!pixels) return (int32_t)shape;
  struct pose pose = draw_pose(&random);
  for (int y = 0; y < SIDE; y++)
    for (int x = 0; x < SIDE; x++) {
      float share = cover(shape, &pose, x, y), pixel[CHANNELS] = {0};
      if (share < 1) lay(&back, 1, x, y, pixel);
      if (share > 0) lay(&front, share, x, y, pixel);
      for (int c = 0; c < CHANNELS; c++) values[c * PLANE + y * SIDE + x] = pixel[c];
    }
  add_noise(values, &random, pixels);
  return (int32_t)shape;
}

enum sl_status sl_shapes_new(int64_t count, uint64_t seed, bool train,
                             struct sl_dataset **dataset) {
  SL__NEEDS(dataset);
  static const char *const names[] = {"disc", "square",   "triangle", "star",  "cross",
                                      "ring", "crescent", "arrow",    "heart", "bolt"};
  struct sl__byte_set *set;
  if (count == 0) count = train ? TRAINING_COUNT : TEST_COUNT;
  enum sl_status status = sl__cifar10_alloc(
      train ? "generated shapes, training set" : "generated shapes, test set", count, &set);
  if (status != SL_OK) return status;
  set->set.info.class_names = names;
  return sl__byte_set_draw(set, &(struct sl__drawing){draw_shape, seed, train}, dataset);
}

const struct sl__reader sl__shapes_reader = {
    .format = {.name = "shapes", .about = "shapes in CIFAR-10's format", .generated = true},
    .generate = sl_shapes_new};
