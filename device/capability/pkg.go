package capability

import (
	"context"
	"fmt"
	"os"
	"slices"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/pkg"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/manifest"
)

func (r Runner) pkgSearch(ctx context.Context, a manifest.PkgSearchArgs, v manifest.Verdict) (func(int) any, error) {
	m, err := pkg.Find(r.command(v))
	if err != nil {
		return nil, err
	}
	found, err := m.Search(ctx, a.Query)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(p pkg.Package) bool { return !v.MatchesName(p.Name) })
	return func(keep int) any {
		packages, more := rows(found, keep, packageSize, onePackage)
		return wire.PkgSearchResult{Manager: m.Name, Packages: packages, Truncated: more}
	}, nil
}

func (r Runner) pkgInstall(ctx context.Context, a manifest.PkgInstallArgs, v manifest.Verdict) (func(int) any, error) {
	c := r.command(v)
	c.Live = r.Live
	m, err := pkg.Find(c)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: %s installs for root alone, and this device runs as %s; nisse-device join --elevated on the machine lets it be root", program.ErrRefused, m.Name, confine.Self())
	}
	done, err := m.Install(ctx, a.Names)
	return func(keep int) any {
		packages, _ := rows(done.Packages, keep, packageSize, onePackage)
		w := wire.PkgInstallResult{Manager: m.Name, Packages: packages, Already: done.Already}
		if done.Output.Stdout.Total+done.Output.Stderr.Total > 0 {
			out, errs, encoding := streams(done.Output.Stdout, done.Output.Stderr, keep/2)
			w.Output, w.Encoding = out+errs, encoding
			if encoding == Base64 {
				w.Output = out // two texts in base64 are none together
			}
		}
		return w
	}, err
}

func packageSize(p pkg.Package) int { return len(p.Name) + len(p.Version) + len(p.Description) }

func onePackage(p pkg.Package) wire.Package { return wire.Package(p) }
