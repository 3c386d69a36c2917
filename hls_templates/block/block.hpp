// Kernel `block`: y = A·x with A in Blocked ELL, one 512-bit word of values a cycle.
//
//   x ──────┬─► read_inputs ─┬─► x_words ─────────────────────────► gather_x
//   matrix ─┘                └─► words ─► unpack ─┬─► columns ──────────┘
//                                                 ├─► values ─────────────────► multiply
//                                                 └─► marks ──────────────────► deal
//
//   gather_x ─► operands ─► multiply ─► row_sums ─► deal
//
//   deal ─┬─► even_sums ─► reduce ─► even_rows ─┬─► collect ─► y_words ─► write_y ─► y
//         └─► odd_sums ──► reduce ─► odd_rows ──┘
//
// The stream has one word of 16 descriptors before the values of the tiles that they describe. A
// tile of P = 4 is one word, one of P = 8 four words of two rows, one of P = 16 sixteen words of a
// row. At P = 32 the first halves of all rows come first, then the second halves, so that a row
// returns only after 32 words.
#pragma once

#include "constants.hpp"
#include "memory.hpp"
#include "reduce.hpp"
#include "words.hpp"

namespace spmv {

// Derived from kBlock and kXRoom of constants.hpp.
constexpr unsigned kWordsPerTile = kBlock * kBlock / kLanes;
constexpr unsigned kRowsPerWord = kBlock < kLanes ? kLanes / kBlock : 1;
constexpr unsigned kOperandsPerTile = kBlock > kLanes ? kBlock / kLanes : 1;
constexpr unsigned kWordsPerOperand = kWordsPerTile / kOperandsPerTile;
constexpr unsigned kGroups = kBlock / kRowsPerWord;
constexpr unsigned kTilesPerXWord = kBlock < kLanes ? kLanes / kBlock : 1;
constexpr unsigned kXWords = kXRoom / kLanes;
constexpr unsigned kDescriptorsPerWord = kLanes;

static_assert(kBlock == 4 || kBlock == 8 || kBlock == 16 || kBlock == 32,
              "block is 4, 8, 16 or 32");
static_assert(kWordsPerTile * kLanes == kBlock * kBlock, "a tile is whole words");
static_assert(kRowsPerWord * kGroups == kBlock, "a round passes every row of the tile once");
static_assert(kWordsPerTile % kGroups == 0, "a tile is whole rounds");
static_assert(kXWords * kLanes == kXRoom, "the room for x is whole words");
static_assert(kXWords % kOperandsPerTile == 0, "the room for x is whole tiles");

// A descriptor: block column, and two flags.
constexpr std::uint32_t kLastInRow = 1u << 31;
constexpr std::uint32_t kEmptyRow = 1u << 30;
constexpr std::uint32_t kColumnMask = kEmptyRow - 1;

struct Mark {
  bool is_last;   // last tile of its block row
  bool is_empty;  // block row without tiles
};

typedef Sums<kRowsPerWord> sums_t;
typedef Rows<kRowsPerWord> rows_t;

// Depths: what a process may run ahead of the next one.
//
// A pipeline that waits for input may keep results that it has computed already (pipeline style
// stp). So where two paths meet again, the longer one must hold more than the other has in flight,
// or both wait for ever: values must hold the tiles whose operands are still inside gather_x, and
// marks those whose sums are still inside multiply and its tree. The bounds below are generous:
// reading URAM takes about 6 cycles, a product and four additions about 40.
constexpr unsigned kGatherLatency = 16;
constexpr unsigned kMultiplyLatency = 64;
constexpr unsigned kWordDepth = 32;  // what a LUT holds as a shift register
constexpr unsigned kValueDepth = at_least(64, kGatherLatency / kOperandsPerTile * kWordsPerTile);
constexpr unsigned kTileDepth = 128;  // twice kMultiplyLatency
constexpr unsigned kSumDepth = 32;

static_assert(kValueDepth * kOperandsPerTile >= kGatherLatency * kWordsPerTile,
              "operands would never leave gather_x");
static_assert(kTileDepth * kWordsPerTile > kMultiplyLatency, "sums would never leave multiply");
static_assert(kSumDepth >= kGroups, "a strip's rows wait for the other reducer's");

// Tells descriptor words from values. An empty block row takes a cycle and no values.
inline void unpack(hls::stream<word_t>& words, hls::stream<word_t>& values,
                   hls::stream<std::uint32_t>& columns, hls::stream<Mark>& marks,
                   unsigned num_words, unsigned num_empty) {
  word_t descriptors;
  unsigned next = kDescriptorsPerWord;  // descriptor that the next word belongs to
  unsigned place = 0;                   // word within its tile
Unpack:
  for (unsigned i = 0; i < num_words + num_empty; ++i) {
#pragma HLS pipeline II = 1
    tick();
    if (next == kDescriptorsPerWord) {
      descriptors = words.read();
      next = 0;
      continue;
    }
    const std::uint32_t descriptor = descriptors[next];
    const bool is_empty = (descriptor & kEmptyRow) != 0;
    if (place == 0) {
      const Mark mark = {(descriptor & kLastInRow) != 0, is_empty};
      marks.write(mark);
      if (!is_empty) columns.write(descriptor & kColumnMask);
    }
    if (!is_empty) values.write(words.read());
    const bool ends = is_empty || place == kWordsPerTile - 1;
    place = ends ? 0 : place + 1;
    next = ends ? next + 1 : next;
  }
}

// Serves the elements of x that a tile needs from a copy on chip: one wide read for a tile, two at
// P = 32. Up to P = 8 the tile's elements are repeated for every row of a word.
inline void gather_x(hls::stream<floats_t>& x_words, hls::stream<std::uint32_t>& columns,
                     hls::stream<floats_t>& operands, unsigned num_tiles, unsigned num_x_words) {
  floats_t x_copy[kXWords];
#pragma HLS bind_storage variable = x_copy type = ram_s2p impl = uram
  SPMV_REQUIRE(num_x_words <= kXWords, "x is longer than its room on chip");
  fill_x(x_words, x_copy, num_x_words);

  std::uint32_t column = 0;
  unsigned part = 0;
GatherX:
  for (unsigned i = 0; i < num_tiles * kOperandsPerTile; ++i) {
#pragma HLS pipeline II = 1
    if (part == 0) column = columns.read();
    const unsigned x_word = column / kTilesPerXWord * kOperandsPerTile + part;
    SPMV_REQUIRE(x_word < num_x_words + kOperandsPerTile, "a tile lies beyond the end of x");
    const floats_t word = x_copy[x_word];
    const unsigned tile_in_word = column % kTilesPerXWord;
    floats_t operand;
  SelectLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      float element = 0.0f;
    SelectTile:
      for (unsigned t = 0; t < kTilesPerXWord; ++t) {
#pragma HLS unroll
        if (t == tile_in_word) element = word[(t * kBlock + lane % kBlock) % kLanes];
      }
      operand[lane] = element;
    }
    operands.write(operand);
    part = part == kOperandsPerTile - 1 ? 0 : part + 1;
  }
}

// Sixteen products a cycle, and the sum of each row in the word.
inline void multiply(hls::stream<word_t>& values, hls::stream<floats_t>& operands,
                     hls::stream<rows_t>& row_sums, unsigned num_value_words) {
  constexpr unsigned kLanesPerRow = kLanes / kRowsPerWord;
  result_latency((1 + log2_of(kLanesPerRow)) * kAdderLatency);
  floats_t operand;
  unsigned place = 0;
Multiply:
  for (unsigned i = 0; i < num_value_words; ++i) {
#pragma HLS pipeline II = 1
    if (place == 0) operand = operands.read();
    const word_t word = values.read();
    float products[kLanes];
#pragma HLS array_partition variable = products complete
  MultiplyLanes:
    for (unsigned lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      products[lane] = product_of(word[lane], operand[lane]);
    }
    rows_t sums;
  SumRows:
    for (unsigned r = 0; r < kRowsPerWord; ++r) {
#pragma HLS unroll
      sums.rows[r] = tree_sum<kLanesPerRow>(products + r * kLanesPerRow);
    }
    row_sums.write(sums);
    place = place == kWordsPerOperand - 1 ? 0 : place + 1;
  }
}

// Gives block rows to the two reducers in turn.
inline void deal(hls::stream<rows_t>& row_sums, hls::stream<Mark>& marks,
                 hls::stream<sums_t>& even_sums, hls::stream<sums_t>& odd_sums,
                 unsigned num_value_words, unsigned num_empty) {
  Mark mark = {false, false};
  unsigned place = 0;
  bool is_odd = false;
Deal:
  for (unsigned i = 0; i < num_value_words + num_empty; ++i) {
#pragma HLS pipeline II = 1
    tick();
    if (place == 0) mark = marks.read();
    rows_t rows = {};
    if (!mark.is_empty) rows = row_sums.read();
    const bool ends_tile = mark.is_empty || place == kWordsPerTile - 1;
    sums_t word;
    word.is_last = mark.is_last && ends_tile;
    word.is_empty = mark.is_empty;
  CopyRows:
    for (unsigned r = 0; r < kRowsPerWord; ++r) {
#pragma HLS unroll
      word.rows[r] = rows.rows[r];
    }
    if (is_odd) {
      odd_sums.write(word);
    } else {
      even_sums.write(word);
    }
    is_odd = word.is_last ? !is_odd : is_odd;
    place = ends_tile ? 0 : place + 1;
  }
}

inline void reduce_block_rows(hls::stream<sums_t>& sums, hls::stream<rows_t>& rows,
                              unsigned num_block_rows) {
  reduce<kRowsPerWord, kGroups>(sums, rows, num_block_rows);
}

inline void collect_block_rows(hls::stream<rows_t>& even_rows, hls::stream<rows_t>& odd_rows,
                               hls::stream<floats_t>& y_words, unsigned num_block_rows) {
  collect<kRowsPerWord, kGroups>(even_rows, odd_rows, y_words, num_block_rows);
}

// One product. All processes run side by side.
inline void product(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                    unsigned num_tiles, unsigned num_value_words, unsigned num_empty,
                    unsigned num_block_rows, unsigned num_even, unsigned num_odd,
                    unsigned num_x_words, unsigned num_y_words) {
  SPMV_DATAFLOW(block)
  SPMV_STREAM_SRL(floats_t, x_words, kWordDepth);
  SPMV_STREAM_SRL(word_t, words, kWordDepth);
  SPMV_STREAM(word_t, values, kValueDepth);
  SPMV_STREAM(std::uint32_t, columns, kTileDepth);
  SPMV_STREAM(Mark, marks, kTileDepth);
  SPMV_STREAM_SRL(floats_t, operands, kWordDepth);
  SPMV_STREAM(rows_t, row_sums, kSumDepth);
  SPMV_STREAM(sums_t, even_sums, kSumDepth);
  SPMV_STREAM(sums_t, odd_sums, kSumDepth);
  SPMV_STREAM(rows_t, even_rows, kSumDepth);
  SPMV_STREAM(rows_t, odd_rows, kSumDepth);
  SPMV_STREAM_SRL(floats_t, y_words, kWordDepth);

  SPMV_PROCESS(read_inputs, x, matrix, x_words, words, num_x_words, num_words);
  SPMV_PROCESS(unpack, words, values, columns, marks, num_words, num_empty);
  SPMV_PROCESS(gather_x, x_words, columns, operands, num_tiles, num_x_words);
  SPMV_PROCESS(multiply, values, operands, row_sums, num_value_words);
  SPMV_PROCESS(deal, row_sums, marks, even_sums, odd_sums, num_value_words, num_empty);
  SPMV_PROCESS(reduce_block_rows, even_sums, even_rows, num_even);
  SPMV_PROCESS(reduce_block_rows, odd_sums, odd_rows, num_odd);
  SPMV_PROCESS(collect_block_rows, even_rows, odd_rows, y_words, num_block_rows);
  SPMV_PROCESS(write_y, y_words, y, num_y_words);
  SPMV_JOIN();
}

// The product, `iterations` times: launch overhead then leaves a measurement.
inline void block(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                  unsigned num_descriptors, unsigned num_tiles, unsigned num_block_rows,
                  unsigned num_x_words, unsigned iterations) {
  const unsigned num_value_words = num_tiles * kWordsPerTile;
  const unsigned num_empty = num_descriptors - num_tiles;
  const unsigned num_even = strips_of(0, num_block_rows);
  const unsigned num_odd = strips_of(1, num_block_rows);
  const unsigned num_y_words = words_for(num_block_rows * kBlock);
Iterate:
  for (unsigned i = 0; i < iterations; ++i) {
    product(matrix, x, y, num_words, num_tiles, num_value_words, num_empty, num_block_rows,
            num_even, num_odd, num_x_words, num_y_words);
  }
}

}  // namespace spmv
