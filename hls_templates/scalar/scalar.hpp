// Kernel `scalar`: y = A·x with A in sliced ELL, one slot a cycle.
//
//   x ──────┬─► read_inputs ─┬─► x_words ─────────────────────────────► gather_x
//   matrix ─┘                └─► words ─► split
//
//   split ─┬─► value_words ──┬─► serialise ─┬─► columns ─► gather_x
//          └─► column_words ─┘              └─► values ──► multiply
//
//   gather_x ─► operands ─► multiply ─► products ─► deal
//
//   deal ─┬─► even_sums ─► reduce ─► even_rows ─┬─► collect ─► y_words ─► write_y ─► y
//         └─► odd_sums ──► reduce ─► odd_rows ──┘
//
// In the stream a word of 16 values and the word of their 16 columns take turns. Neighbours belong
// to the L rows of a slice, so an accumulator returns only after L slots. The slots of a slice's
// last slot-column carry a flag in their column.
#pragma once

#include "constants.hpp"
#include "memory.hpp"
#include "reduce.hpp"
#include "words.hpp"

namespace spmv {

// Derived from kSlice and kXRoom of constants.hpp.
constexpr unsigned kXWords = kXRoom / kLanes;

static_assert(kSlice == 4 || kSlice == 8 || kSlice == 16 || kSlice == 32,
              "slice is 4, 8, 16 or 32");
static_assert(kXWords * kLanes == kXRoom, "the room for x is whole words");

// A column index, and a flag: the slot is in the last slot-column of its slice.
constexpr std::uint32_t kLastInSlice = 1u << 31;
constexpr std::uint32_t kColumnMask = kLastInSlice - 1;

struct Operand {
  float x;
  bool is_last;
};

struct Product {
  float value;
  bool is_last;
};

typedef Sums<1> sums_t;
typedef Rows<1> rows_t;

// Depths: what a process may run ahead of the next one. A pipeline that waits for input may keep
// results that it has computed already (pipeline style stp): values must hold the slots whose
// operands are still inside gather_x, or both wait for ever.
constexpr unsigned kGatherLatency = 16;
constexpr unsigned kWordDepth = 32;  // what a LUT holds as a shift register
constexpr unsigned kSlotDepth = 32;

static_assert(kSlotDepth > kGatherLatency, "operands would never leave gather_x");
static_assert(kSlotDepth >= kSlice, "a slice's rows wait for the other reducer's");

// Sends every second word to the columns: serialise then reads each stream once in a cycle.
inline void split(hls::stream<word_t>& words, hls::stream<word_t>& value_words,
                  hls::stream<word_t>& column_words, unsigned num_words) {
  bool is_column = false;
Split:
  for (unsigned i = 0; i < num_words; ++i) {
#pragma HLS pipeline II = 1
    const word_t word = words.read();
    if (is_column) {
      column_words.write(word);
    } else {
      value_words.write(word);
    }
    is_column = !is_column;
  }
}

// Sixteen slots of a pair of words, one a cycle; the last pair may be longer than the matrix.
inline void serialise(hls::stream<word_t>& value_words, hls::stream<word_t>& column_words,
                      hls::stream<std::uint32_t>& values, hls::stream<std::uint32_t>& columns,
                      unsigned num_slots) {
  word_t value_word;
  word_t column_word;
  unsigned lane = 0;
Serialise:
  for (unsigned i = 0; i < num_slots; ++i) {
#pragma HLS pipeline II = 1
    if (lane == 0) {
      value_word = value_words.read();
      column_word = column_words.read();
    }
    values.write(value_word[lane]);
    columns.write(column_word[lane]);
    lane = lane == kLanes - 1 ? 0 : lane + 1;
  }
}

// Serves one element of x a cycle from a copy on chip.
inline void gather_x(hls::stream<floats_t>& x_words, hls::stream<std::uint32_t>& columns,
                     hls::stream<Operand>& operands, unsigned num_slots, unsigned num_x_words) {
  floats_t x_copy[kXWords];
#pragma HLS bind_storage variable = x_copy type = ram_s2p impl = uram
  SPMV_REQUIRE(num_x_words <= kXWords, "x is longer than its room on chip");
  fill_x(x_words, x_copy, num_x_words);
GatherX:
  for (unsigned i = 0; i < num_slots; ++i) {
#pragma HLS pipeline II = 1
    const std::uint32_t index = columns.read();
    const std::uint32_t column = index & kColumnMask;
    SPMV_REQUIRE(column == 0 || column / kLanes < num_x_words, "a slot lies beyond the end of x");
    const Operand operand = {x_copy[column / kLanes][column % kLanes], (index & kLastInSlice) != 0};
    operands.write(operand);
  }
}

inline void multiply(hls::stream<std::uint32_t>& values, hls::stream<Operand>& operands,
                     hls::stream<Product>& products, unsigned num_slots) {
  result_latency(kAdderLatency);
Multiply:
  for (unsigned i = 0; i < num_slots; ++i) {
#pragma HLS pipeline II = 1
    const Operand operand = operands.read();
    const Product product = {product_of(values.read(), operand.x), operand.is_last};
    products.write(product);
  }
}

// Gives slices to the two reducers in turn.
inline void deal(hls::stream<Product>& products, hls::stream<sums_t>& even_sums,
                 hls::stream<sums_t>& odd_sums, unsigned num_slots) {
  unsigned lane = 0;
  bool is_odd = false;
Deal:
  for (unsigned i = 0; i < num_slots; ++i) {
#pragma HLS pipeline II = 1
    const Product product = products.read();
    const bool ends_column = lane == kSlice - 1;
    sums_t word;
    word.rows[0] = product.value;
    word.is_last = product.is_last && ends_column;
    word.is_empty = false;
    if (is_odd) {
      odd_sums.write(word);
    } else {
      even_sums.write(word);
    }
    is_odd = word.is_last ? !is_odd : is_odd;
    lane = ends_column ? 0 : lane + 1;
  }
}

inline void reduce_slices(hls::stream<sums_t>& sums, hls::stream<rows_t>& rows,
                          unsigned num_slices) {
  reduce<1, kSlice>(sums, rows, num_slices);
}

inline void collect_slices(hls::stream<rows_t>& even_rows, hls::stream<rows_t>& odd_rows,
                           hls::stream<floats_t>& y_words, unsigned num_slices) {
  collect<1, kSlice>(even_rows, odd_rows, y_words, num_slices);
}

// One product. All processes run side by side.
inline void product(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                    unsigned num_slots, unsigned num_slices, unsigned num_even, unsigned num_odd,
                    unsigned num_x_words, unsigned num_y_words) {
  SPMV_DATAFLOW(scalar)
  SPMV_STREAM_SRL(floats_t, x_words, kWordDepth);
  SPMV_STREAM_SRL(word_t, words, kWordDepth);
  SPMV_STREAM_SRL(word_t, value_words, kWordDepth);
  SPMV_STREAM_SRL(word_t, column_words, kWordDepth);
  SPMV_STREAM(std::uint32_t, values, kSlotDepth);
  SPMV_STREAM(std::uint32_t, columns, kSlotDepth);
  SPMV_STREAM(Operand, operands, kSlotDepth);
  SPMV_STREAM(Product, products, kSlotDepth);
  SPMV_STREAM(sums_t, even_sums, kSlotDepth);
  SPMV_STREAM(sums_t, odd_sums, kSlotDepth);
  SPMV_STREAM(rows_t, even_rows, kSlotDepth);
  SPMV_STREAM(rows_t, odd_rows, kSlotDepth);
  SPMV_STREAM_SRL(floats_t, y_words, kWordDepth);

  SPMV_PROCESS(read_inputs, x, matrix, x_words, words, num_x_words, num_words);
  SPMV_PROCESS(split, words, value_words, column_words, num_words);
  SPMV_PROCESS(serialise, value_words, column_words, values, columns, num_slots);
  SPMV_PROCESS(gather_x, x_words, columns, operands, num_slots, num_x_words);
  SPMV_PROCESS(multiply, values, operands, products, num_slots);
  SPMV_PROCESS(deal, products, even_sums, odd_sums, num_slots);
  SPMV_PROCESS(reduce_slices, even_sums, even_rows, num_even);
  SPMV_PROCESS(reduce_slices, odd_sums, odd_rows, num_odd);
  SPMV_PROCESS(collect_slices, even_rows, odd_rows, y_words, num_slices);
  SPMV_PROCESS(write_y, y_words, y, num_y_words);
  SPMV_JOIN();
}

// The product, `iterations` times: launch overhead then leaves a measurement.
inline void scalar(const word_t* matrix, const floats_t* x, floats_t* y, unsigned num_words,
                   unsigned num_slots, unsigned num_slices, unsigned num_x_words,
                   unsigned iterations) {
  const unsigned num_even = strips_of(0, num_slices);
  const unsigned num_odd = strips_of(1, num_slices);
  const unsigned num_y_words = words_for(num_slices * kSlice);
Iterate:
  for (unsigned i = 0; i < iterations; ++i) {
    product(matrix, x, y, num_words, num_slots, num_slices, num_even, num_odd, num_x_words,
            num_y_words);
  }
}

}  // namespace spmv
