// Package display takes pictures of the operator's screen, by the programs that the machine has for it.
package display

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// Session that an environment leads to.
type Session string

// Sessions.
const (
	Wayland Session = "Wayland"
	X11     Session = "X11"
)

// Of an environment: Wayland where it names both, for X is then only what old programs see of it.
func Of(env []string) (Session, error) {
	switch {
	case program.Variable(env, "WAYLAND_DISPLAY") != "" && program.Variable(env, "XDG_RUNTIME_DIR") != "":
		return Wayland, nil
	case program.Variable(env, "DISPLAY") != "":
		return X11, nil
	}
	return "", fmt.Errorf("%w: the manifest's environment names no display; it needs WAYLAND_DISPLAY with XDG_RUNTIME_DIR, or DISPLAY with XAUTHORITY", program.ErrMissing)
}

// tools that write a PNG of the whole screen to their output.
var tools = map[Session][][]string{
	Wayland: {{"grim", "-t", "png", "-"}},
	X11:     {{"maim", "--format=png"}, {"import", "-silent", "-window", "root", "png:-"}, {"scrot", "-"}},
}

// tool of a session that this machine has.
func tool(s Session) ([]string, error) {
	var names []string
	for _, t := range tools[s] {
		if file, err := program.Find(t[0]); err == nil {
			return append([]string{file}, t[1:]...), nil
		}
		names = append(names, t[0])
	}
	_, err := program.Find(names...)
	return nil, err
}

// Probe tells how pictures are taken here.
func Probe(env []string) (string, error) {
	s, err := Of(env)
	if err != nil {
		return "", err
	}
	argv, err := tool(s)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s by %s", s, argv[0]), nil
}

const (
	// mostBytes of a picture as a tool writes it.
	mostBytes = 64 << 20
	// mostPixels of a screen: one of the largest there are, or four of the usual. Four bytes each are 140 MB, which fits into what the unit
	// gives the device (MemoryMax) as long as one picture is taken at a time.
	mostPixels = 35_000_000
)

// Capture the whole screen.
func Capture(ctx context.Context, c command.Command) (image.Image, error) {
	s, err := Of(c.Env)
	if err != nil {
		return nil, err
	}
	if c.Argv, err = tool(s); err != nil {
		return nil, err
	}
	c.Keep, c.Stdin = mostBytes, nil
	r, err := program.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	if r.Stdout.Missing() > 0 {
		return nil, fmt.Errorf("%s wrote %d bytes, which is too much for a picture", c.Argv[0], r.Stdout.Total)
	}
	return decode(r.Stdout.Bytes())
}

func decode(b []byte) (image.Image, error) {
	size, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("the picture is no PNG: %w", err)
	}
	if size.Width < 1 || size.Height < 1 || size.Width > mostPixels/size.Height {
		return nil, fmt.Errorf("a picture of %d by %d is not taken", size.Width, size.Height)
	}
	if deep(size.ColorModel) && size.Width > mostPixels/2/size.Height {
		return nil, fmt.Errorf("a picture of %d by %d with 16 bits a color is not taken", size.Width, size.Height)
	}
	return png.Decode(bytes.NewReader(b))
}

// deep pixels take twice the memory.
func deep(m color.Model) bool { return m == color.RGBA64Model || m == color.NRGBA64Model }

// bounded buffer keeps no more than it may, and counts the rest.
type bounded struct {
	bytes.Buffer
	most, size int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.size += len(p)
	if b.size > b.most {
		b.Buffer = bytes.Buffer{}
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// Picture that fits.
type Picture struct {
	// Base64 of a PNG.
	Base64        string
	Width, Height int
}

// Smaller picture of this one that fits.
func (p Picture) Smaller(most int) (Picture, bool) {
	if len(p.Base64) <= most {
		return p, true
	}
	b, err := base64.StdEncoding.DecodeString(p.Base64)
	if err != nil {
		return Picture{}, false
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return Picture{}, false
	}
	return Fit(m, most)
}

// least width of a picture on which anything can be seen.
const least = 16

// Fit a picture into so many bytes of base64, by making it smaller. ok is false when nothing that can be seen would fit.
func Fit(m image.Image, most int) (p Picture, ok bool) {
	for by := 1; m.Bounds().Dx()/by >= least; by++ {
		small := smaller(m, by)
		b := bounded{most: most}
		if err := png.Encode(&b, small); err != nil {
			return Picture{}, false
		}
		size := base64.StdEncoding.EncodedLen(b.size)
		if size <= most {
			return Picture{Base64: base64.StdEncoding.EncodeToString(b.Bytes()), Width: small.Bounds().Dx(), Height: small.Bounds().Dy()}, true
		}
		// The size falls with the area at most; what would still be four times too large is not tried.
		for by < m.Bounds().Dx() && by*by*4*most < size {
			by++
		}
	}
	return Picture{}, false
}

// smaller picture: each pixel is the mean of a square of so many by so many.
func smaller(m image.Image, by int) image.Image {
	if by <= 1 {
		return m
	}
	from := m.Bounds()
	w, h := from.Dx()/by, max(1, from.Dy()/by)
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			var r, g, b, n uint64
			for dy := range min(by, from.Dy()) {
				for dx := range by {
					pr, pg, pb, _ := m.At(from.Min.X+x*by+dx, from.Min.Y+y*by+dy).RGBA()
					r, g, b, n = r+uint64(pr), g+uint64(pg), b+uint64(pb), n+1
				}
			}
			i := out.PixOffset(x, y)
			out.Pix[i], out.Pix[i+1], out.Pix[i+2], out.Pix[i+3] = byte(r/n>>8), byte(g/n>>8), byte(b/n>>8), 0xff
		}
	}
	return out
}
