package model

import "testing"

func TestThoughtsAreNotSpeech(t *testing.T) {
	tests := map[string]struct{ in, speech, thought string }{
		"none":             {"Hello.", "Hello.", ""},
		"before":           {"<think>hm</think>\n\nHello.", "Hello.", "hm"},
		"in the middle":    {"A <think>x</think>B", "A B", "x"},
		"several":          {"<think>a</think>one<think>b</think>two", "onetwo", "a\nb"},
		"never closed":     {"Hello <think>secret plan", "Hello", "secret plan"},
		"opened by server": {"secret plan</think>Hello.", "Hello.", "secret plan"},
		"nested":           {"<think>a <think>b</think> c</think>Hello.", "Hello.", "a <think>b\nc"},
		"other spelling":   {"<THINKING>x</Thinking>Hello.", "Hello.", "x"},
		"nothing but":      {"<think>x</think>", "", "x"},
		"closed twice":     {"<think>a</think>b</think>Hello.", "Hello.", "a\nb"},
		"open left over":   {"<think>a <think>b</think>Hello.", "Hello.", "a <think>b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if speech, thought := Split(tt.in); speech != tt.speech || thought != tt.thought {
				t.Errorf("Split(%q) = %q, %q; want %q, %q", tt.in, speech, thought, tt.speech, tt.thought)
			}
		})
	}
}
