module nisse.io/nisse

go 1.26.0
