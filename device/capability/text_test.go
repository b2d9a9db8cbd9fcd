package capability

import "testing"

func TestText(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       string
		keep     int
		more     bool
		want     string
		encoding string
		used     int
	}{
		{"text", "hello", 10, false, "hello", UTF8, 5},
		{"nothing", "", 10, false, "", UTF8, 0},
		{"cut", "hello", 2, false, "he", UTF8, 2},
		{"rune cut by keep", "aü", 2, false, "a", UTF8, 1},
		{"rune cut by the limit of the read", "a\xc3", 10, true, "a", UTF8, 1},
		{"long rune cut", "a\xf0\x9f\x98", 10, true, "a", UTF8, 1},
		{"file that ends so is binary", "a\xc3", 10, false, "YcM=", Base64, 2},
		{"less than a rune", "\xf0\x9f", 10, true, "8J8=", Base64, 2},
		{"binary", "a\xffb", 10, false, "Yf9i", Base64, 3},
		{"NUL", "a\x00", 10, false, "YQA=", Base64, 2},
		{"NUL before a cut rune", "a\x00\xc3", 10, true, "YQDD", Base64, 3},
		{"invalid at the end, more follows", "a\xff", 10, true, "Yf8=", Base64, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, encoding, used := text([]byte(c.in), c.keep, c.more)
			if s != c.want || encoding != c.encoding || used != c.used {
				t.Errorf("got %q, %s, %d", s, encoding, used)
			}
		})
	}
}
