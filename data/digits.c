/* Generated digits: lines and arcs, warped, slanted, scaled and shifted at random, drawn with a pen
 * of random width, with noise. Numbers come from Philox by (seed, set, sample): sample i does not
 * depend on other samples. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "data/source.h"

#define SIDE 28
#define HALF_HEIGHT 9.5f /* pixels from the centre to the top of a digit of scale 1 */
#define TRAINING_COUNT 10000
#define TEST_COUNT 2000
#define ARC_STEP 20.0f /* degrees; no corner is visible at this size */
#define RADIANS 0.017453293f

/* x to the right, y down, a digit's height from -1 to 1. An arc has a centre, two radii and two
 * angles, begin and end: 0 is right, 90 is down. */
enum kind { END, LINE, ARC };
struct piece {
  enum kind kind;
  float v[6];
};

#define PIECES 4
#define VARIANTS 2

/* Two shapes of each digit. */
static const struct piece digits[10][VARIANTS][PIECES] = {
    {{{ARC, {0, 0, .6f, 1, 0, 360}}}, {{ARC, {0, 0, .7f, .95f, -80, 300}}}},
    {{{LINE, {0, -1, 0, 1}}}, {{LINE, {-.4f, -.6f, 0, -1}}, {LINE, {0, -1, 0, 1}}}},
    {{{ARC, {0, -.5f, .55f, .5f, 180, 390}},
      {LINE, {.476f, -.25f, -.55f, 1}},
      {LINE, {-.55f, 1, .6f, 1}}},
     {{ARC, {-.05f, -.45f, .55f, .55f, 200, 415}},
      {LINE, {.265f, 0, -.35f, .8f}},
      {ARC, {-.4f, .9f, .17f, .13f, 0, 360}},
      {LINE, {-.3f, .85f, .6f, .95f}}}},
    {{{ARC, {0, -.5f, .5f, .5f, 200, 450}}, {ARC, {0, .5f, .55f, .5f, 270, 520}}},
     {{LINE, {-.5f, -1, .5f, -1}},
      {LINE, {.5f, -1, -.05f, -.2f}},
      {ARC, {-.05f, .4f, .6f, .6f, 270, 510}}}},
    {{{LINE, {.2f, -1, -.6f, .35f}}, {LINE, {-.6f, .35f, .65f, .35f}}, {LINE, {.3f, -.3f, .3f, 1}}},
     {{LINE, {-.4f, -1, -.55f, .15f}},
      {LINE, {-.55f, .15f, .6f, .15f}},
      {LINE, {.45f, -.9f, .35f, 1}}}},
    {{{LINE, {.5f, -1, -.45f, -1}},
      {LINE, {-.45f, -1, -.48f, -.1f}},
      {ARC, {0, .4f, .58f, .6f, 235, 520}}},
     {{LINE, {.6f, -.95f, -.3f, -.9f}},
      {LINE, {-.3f, -.9f, -.45f, -.2f}},
      {ARC, {-.1f, .4f, .6f, .6f, 240, 480}}}},
    {{{ARC, {0, .45f, .55f, .55f, 0, 360}}, {ARC, {.55f, .45f, 1.1f, 1.45f, 180, 260}}},
     {{ARC, {0, .5f, .5f, .48f, 0, 360}}, {LINE, {-.5f, .45f, -.05f, -1}}}},
    {{{LINE, {-.55f, -1, .55f, -1}}, {LINE, {.55f, -1, -.15f, 1}}},
     {{LINE, {-.55f, -.9f, .55f, -1}},
      {LINE, {.55f, -1, -.05f, 1}},
      {LINE, {-.25f, .05f, .5f, -.02f}}}},
    {{{ARC, {0, -.5f, .45f, .48f, 0, 360}}, {ARC, {0, .5f, .55f, .5f, 0, 360}}},
     {{ARC, {.05f, -.55f, .48f, .42f, 0, 360}}, {ARC, {-.05f, .44f, .45f, .56f, 0, 360}}}},
    {{{ARC, {0, -.45f, .52f, .55f, 0, 360}}, {LINE, {.52f, -.45f, .4f, 1}}},
     {{ARC, {0, -.45f, .55f, .52f, 0, 360}}, {ARC, {-.55f, -.45f, 1.1f, 1.45f, 0, 80}}}},
};

/* The handwriting of a sample: a bend, then a linear map to pixels. */
struct hand {
  float bend_x, bend_y, phase_x, phase_y;
  float xx, xy, yx, yy, x, y;
  float radius; /* of the pen, in pixels */
};

static struct hand draw_hand(struct sl__source *random) {
  struct hand hand;
  hand.bend_x = sl__between(random, -.14f, .14f);
  hand.bend_y = sl__between(random, -.1f, .1f);
  hand.phase_x = sl__between(random, 0, 6.2831853f);
  hand.phase_y = sl__between(random, 0, 6.2831853f);
  float height = HALF_HEIGHT * sl__between(random, .75f, 1.08f);
  float width = height * sl__between(random, .75f, 1.2f);
  float slant = sl__between(random, -.4f, .25f), turn = sl__between(random, -.2f, .2f);
  float c = cosf(turn), s = sinf(turn);
  hand.xx = c * width;
  hand.xy = c * slant * height - s * height;
  hand.yx = s * width;
  hand.yy = s * slant * height + c * height;
  hand.x = SIDE / 2.0f + sl__between(random, -2.5f, 2.5f);
  hand.y = SIDE / 2.0f + sl__between(random, -2.5f, 2.5f);
  hand.radius = sl__between(random, .6f, 1.5f);
  return hand;
}

struct point {
  float x, y;
};

static struct point place(const struct hand *hand, float x, float y) {
  float bent_x = x + hand->bend_x * sinf(2.5f * y + hand->phase_x);
  float bent_y = y + hand->bend_y * sinf(2.5f * x + hand->phase_y);
  return (struct point){hand->xx * bent_x + hand->xy * bent_y + hand->x,
                        hand->yx * bent_x + hand->yy * bent_y + hand->y};
}

/* The first and last pixel that a stroke from a to b can touch. */
static void reach(float a, float b, float radius, int *first, int *last) {
  *first = (int)sl__clamp(floorf(fminf(a, b) - radius - .5f), 0, SIDE - 1);
  *last = (int)sl__clamp(ceilf(fmaxf(a, b) + radius + .5f), 0, SIDE - 1);
}

/* Draws with anti-aliasing: a pixel is covered by the depth of its centre inside the pen's edge. */
static void draw_segment(struct point a, struct point b, float radius, float ink[SIDE][SIDE]) {
  int left, right, top, bottom;
  float dx = b.x - a.x, dy = b.y - a.y;
  float scale = 1.0f / fmaxf(dx * dx + dy * dy, 1e-6f);
  float edge = radius + .5f;
  reach(a.x, b.x, radius, &left, &right);
  reach(a.y, b.y, radius, &top, &bottom);
  for (int y = top; y <= bottom; y++)
    for (int x = left; x <= right; x++) {
      float px = (float)x + .5f - a.x, py = (float)y + .5f - a.y;
      float along = sl__clamp((px * dx + py * dy) * scale, 0, 1);
      float ex = px - along * dx, ey = py - along * dy;
      float square = ex * ex + ey * ey;
      if (square >= edge * edge) continue;
      float cover = fminf(edge - sqrtf(square), 1);
      if (cover > ink[y][x]) ink[y][x] = cover;
    }
}

/* Draws a line or an arc as short straight segments: the bend makes a line a curve, too. */
static void draw_piece(const struct piece *piece, const struct hand *hand, float ink[SIDE][SIDE]) {
  const float *v = piece->v;
  int steps = piece->kind == LINE ? 4 : (int)ceilf((v[5] - v[4]) / ARC_STEP);
  struct point from = {0, 0};
  for (int i = 0; i <= steps; i++) {
    float t = (float)i / (float)steps, x, y;
    if (piece->kind == LINE) {
      x = v[0] + t * (v[2] - v[0]);
      y = v[1] + t * (v[3] - v[1]);
    } else {
      float angle = (v[4] + t * (v[5] - v[4])) * RADIANS;
      x = v[0] + v[2] * cosf(angle);
      y = v[1] + v[3] * sinf(angle);
    }
    struct point to = place(hand, x, y);
    if (i > 0) draw_segment(from, to, hand->radius, ink);
    from = to;
  }
}

/* Turns ink into bytes, with noise. */
static void develop(float ink[SIDE][SIDE], struct sl__source *random, uint8_t *pixels) {
  float strength = sl__between(random, 150, 255),
        noise = sl__between(random, 2, 26) / SL__BELL_DEVIATION;
  uint64_t first = (random->next + 3) / 4; /* from here on whole blocks of four numbers */
  for (int i = 0; i < SIDE * SIDE; i += 4) {
    struct sl__random4 r = sl__philox(random->seed, random->stream, first + (uint64_t)i / 4);
    for (int j = 0; j < 4; j++) {
      float value = strength * (&ink[0][0])[i + j] + noise * (float)sl__bell(r.v[j]);
      pixels[i + j] = (uint8_t)sl__clamp(value + .5f, 0, 255);
    }
  }
}

static int32_t draw_digit(uint64_t seed, bool train, int64_t i, uint8_t *pixels) {
  struct sl__source random = sl__source(SL__SOURCE_DIGITS, seed, train, i);
  int digit = (int)sl__between(&random, 0, 10), variant = (int)sl__between(&random, 0, VARIANTS);
  if (!pixels) return digit;
  float ink[SIDE][SIDE] = {{0}};
  struct hand hand = draw_hand(&random);
  for (int p = 0; p < PIECES && digits[digit][variant][p].kind != END; p++)
    draw_piece(&digits[digit][variant][p], &hand, ink);
  develop(ink, &random, pixels);
  return digit;
}

enum sl_status sl_digits_new(int64_t count, uint64_t seed, bool train,
                             struct sl_dataset **dataset) {
  SL__NEEDS(dataset);
  const float mean = SL__MNIST_MEAN, deviation = SL__MNIST_DEVIATION;
  struct sl__byte_set *set;
  if (count == 0) count = train ? TRAINING_COUNT : TEST_COUNT;
  enum sl_status status =
      sl__byte_set_new(train ? "generated digits, training set" : "generated digits, test set",
                       &SL_SHAPE(1, SIDE, SIDE), count, 10, &mean, &deviation, &set);
  if (status != SL_OK) return status;
  return sl__byte_set_draw(set, &(struct sl__drawing){draw_digit, seed, train}, dataset);
}

const struct sl__reader sl__digits_reader = {
    .format = {.name = "digits", .about = "digits like MNIST's", .generated = true},
    .generate = sl_digits_new};
