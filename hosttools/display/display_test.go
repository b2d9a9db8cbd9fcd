package display

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/desktoptest"
	"nisse.io/nisse/hosttools/program"
)

func as(env []string) command.Command {
	return command.Command{Timeout: time.Minute, Keep: 1000, Env: env}
}

func TestCaptureX11(t *testing.T) {
	env, ok := desktoptest.X11(t)
	if !ok {
		env = []string{"DISPLAY=:1"}
	}
	if _, err := Probe(env); err != nil {
		if _, cerr := Capture(t.Context(), as(env)); !errors.Is(err, program.ErrMissing) || !errors.Is(cerr, program.ErrMissing) {
			t.Errorf("a machine without the programs: %v, %v", err, cerr)
		}
		return
	}
	if !ok {
		var f *program.Failure
		if _, err := Capture(t.Context(), as(env)); !errors.As(err, &f) {
			t.Errorf("a display that nobody serves: %v", err)
		}
		return
	}
	m, err := Capture(t.Context(), as(env))
	if err != nil {
		t.Fatal(err)
	}
	if b := m.Bounds(); b.Dx() != desktoptest.Width || b.Dy() != desktoptest.Height {
		t.Errorf("the picture is %v", b)
	}
	if r, g, b, _ := m.At(400, 300).RGBA(); r>>8 != 0xff || g>>8 != 0xff || b>>8 != 0xff {
		t.Errorf("a white screen looks like %x %x %x", r, g, b)
	}
}

func TestCaptureWayland(t *testing.T) {
	env, ok := desktoptest.Wayland(t)
	if !ok {
		env = []string{"WAYLAND_DISPLAY=wayland-1", "XDG_RUNTIME_DIR=/nowhere"}
	}
	_, err := Probe(env)
	m, cerr := Capture(t.Context(), as(env))
	var f *program.Failure
	switch {
	case err != nil:
		if !errors.Is(err, program.ErrMissing) || !errors.Is(cerr, program.ErrMissing) {
			t.Errorf("a machine without the programs: %v, %v", err, cerr)
		}
	case !ok:
		if !errors.As(cerr, &f) {
			t.Errorf("a display that nobody serves: %v", cerr)
		}
	case cerr != nil:
		t.Error(cerr)
	case m.Bounds().Dx() != 1280 || m.Bounds().Dy() != 720:
		t.Errorf("the picture is %v", m.Bounds())
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want Session
	}{
		{[]string{"DISPLAY=:0"}, X11},
		{[]string{"WAYLAND_DISPLAY=wayland-0", "XDG_RUNTIME_DIR=/run/user/1000", "DISPLAY=:0"}, Wayland},
		{[]string{"WAYLAND_DISPLAY=wayland-0", "DISPLAY=:0"}, X11},
		{[]string{"DISPLAY="}, ""},
		{nil, ""},
	} {
		got, err := Of(c.env)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, program.ErrMissing) {
			t.Errorf("%q: %s, %v", c.env, got, err)
		}
	}
	if _, err := Capture(t.Context(), as(nil)); !errors.Is(err, program.ErrMissing) {
		t.Errorf("got %v", err)
	}
}

// noise does not get smaller by being a PNG.
func noise(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(5, 7, w+5, h+7))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range m.Pix {
		m.Pix[i] = byte(r.Uint32()) | 3
		if i%4 == 3 {
			m.Pix[i] = 0xff
		}
	}
	return m
}

func TestFit(t *testing.T) {
	m := noise(640, 400)
	for _, c := range []struct {
		name        string
		most, width int // width 0: it does not fit
	}{
		{"as it is", 4 << 20, 640},
		{"half", 400_000, 320},
		{"small", 30_000, 106},
		{"nothing to be seen", 100, 0},
		{"nothing", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, ok := Fit(m, c.most)
			if ok != (c.width > 0) || p.Width != c.width || len(p.Base64) > c.most {
				t.Fatalf("%d by %d in %d bytes, %t", p.Width, p.Height, len(p.Base64), ok)
			}
			if !ok {
				return
			}
			b, err := base64.StdEncoding.DecodeString(p.Base64)
			if err != nil {
				t.Fatal(err)
			}
			got, err := png.Decode(bytes.NewReader(b))
			if err != nil || got.Bounds().Dx() != p.Width || got.Bounds().Dy() != p.Height {
				t.Error(got.Bounds(), err)
			}
		})
	}
}

func TestSmallerIsTheMean(t *testing.T) {
	m := image.NewGray(image.Rect(0, 0, 4, 2))
	copy(m.Pix, []byte{0, 100, 200, 200, 100, 200, 200, 200})
	got := smaller(m, 2)
	if a, b := got.At(0, 0), got.At(1, 0); a != (color.RGBA{100, 100, 100, 255}) || b != (color.RGBA{200, 200, 200, 255}) {
		t.Error(a, b)
	}
}

func TestDecodeRefuses(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	huge := b.Bytes()
	copy(huge[16:24], []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff})
	for name, b := range map[string][]byte{"nothing": nil, "words": []byte(strings.Repeat("no picture", 10)), "a bomb": huge} {
		if _, err := decode(b); err == nil {
			t.Errorf("%s is taken for a picture", name)
		}
	}
}

// header of a PNG of a size, as far as its size is read.
func header(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What would take more memory than the device has is not unpacked.
func TestScreensThatAreTooLarge(t *testing.T) {
	for _, c := range []struct {
		name string
		m    image.Image
		ok   bool
	}{
		{"as large as may be", image.NewGray(image.Rect(0, 0, 7680, 4320)), true},
		{"larger", image.NewGray(image.Rect(0, 0, 7680, 4600)), false},
		{"half as large, with 16 bits", image.NewRGBA64(image.Rect(0, 0, 3840, 4320)), true},
		{"larger, with 16 bits", image.NewRGBA64(image.Rect(0, 0, 3840, 4600)), false},
	} {
		if _, err := decode(header(t, c.m)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A picture of the size that fitted once is made smaller without its screen.
func TestSmaller(t *testing.T) {
	p, ok := Fit(noise(640, 400), 4<<20)
	if !ok || p.Width != 640 {
		t.Fatalf("got %d, %v", p.Width, ok)
	}
	if same, ok := p.Smaller(len(p.Base64)); !ok || same != p {
		t.Error("it changed though it fits")
	}
	if s, ok := p.Smaller(400_000); !ok || s.Width != 320 || len(s.Base64) > 400_000 {
		t.Errorf("got %d by %d, %v", s.Width, s.Height, ok)
	}
	if _, ok := p.Smaller(10); ok {
		t.Error("it fits into 10 bytes")
	}
}
