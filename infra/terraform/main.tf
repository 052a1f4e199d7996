# Dormouse as a module: CloudFormation makes what template.yaml describes, Terraform hands it the functions and the
# parameters and takes its outputs. README.md has an example.

variable "name" {
  description = "The name of the stack, after which everything is named."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{0,55}$", var.name))
    error_message = "It has to be a letter, then up to 55 letters, digits and dashes: Lambda takes no longer names of functions."
  }
}

variable "zips" {
  description = "The folder with inbound.zip, signal.zip, stream.zip and wakeup.zip, as functions/build.sh makes them; with tools.zip where tools is enabled, and with socket.zip where sockets are."
  type        = string
}

variable "artifact_bucket" {
  description = "A bucket of yours in the same region, for the functions and the template."
  type        = string
}

variable "template" {
  description = "The template; that of this repository unless it is another one."
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags of everything in the stack."
  type        = map(string)
  default     = {}
}

data "aws_region" "here" {}

data "aws_partition" "here" {}

locals {
  template  = coalesce(var.template, "${path.module}/../template.yaml")
  functions = concat(["inbound", "signal", "stream", "wakeup"], var.tools == "enabled" ? ["tools"] : [], var.sockets == "enabled" ? ["socket"] : [])
  build     = substr(sha256(join("", [for name in local.functions : filesha256("${var.zips}/${name}.zip")])), 0, 16)
  prefix    = "${var.name}/${local.build}-${terraform_data.place.id}"

  # A parameter that is not given keeps the default of the template.
  chosen = { for name, value in local.given : name => tostring(value) if value != null }

  # A turn ends before its function does.
  longer = var.turn_seconds == null ? {} : {
    SignalTimeout = tostring(max(180, var.turn_seconds + 30))
    WakeupTimeout = tostring(max(300, var.turn_seconds + 30))
  }

  # Another release publishes new versions of the functions.
  release = substr(sha256(jsonencode([filesha256(local.template), local.build, local.longer, local.chosen])), 0, 16)
}

# A build that is deployed again, after another one that failed, has a place of its own: what is removed of the one place is not in
# the other.
resource "terraform_data" "place" {
  triggers_replace = local.build
}

# The zips of the build before go when the stack has moved, and stay where it has not: CloudFormation takes them when it goes back.
resource "aws_s3_object" "function" {
  for_each = toset(local.functions)

  bucket      = var.artifact_bucket
  key         = "${local.prefix}/${each.key}.zip"
  source      = "${var.zips}/${each.key}.zip"
  source_hash = filesha256("${var.zips}/${each.key}.zip")

  lifecycle {
    create_before_destroy = true
  }
}

# It is larger than what CloudFormation takes in a request.
resource "aws_s3_object" "template" {
  bucket      = var.artifact_bucket
  key         = "${var.name}/template/${filesha256(local.template)}.yaml"
  source      = local.template
  source_hash = filesha256(local.template)
}

resource "aws_cloudformation_stack" "this" {
  name         = var.name
  template_url = "https://${var.artifact_bucket}.s3.${data.aws_region.here.name}.${data.aws_partition.here.dns_suffix}/${aws_s3_object.template.key}"
  capabilities = ["CAPABILITY_IAM"]
  tags         = var.tags

  parameters = merge(local.longer, local.chosen, {
    ArtifactBucket = var.artifact_bucket
    ArtifactPrefix = local.prefix
    Release        = local.release
  })

  # The provider waits for half an hour, and a rollout in ten steps of ten minutes takes longer.
  timeouts {
    create = "1h"
    update = "4h"
    delete = "1h"
  }

  lifecycle {
    precondition {
      condition     = coalesce(var.turn_seconds, 150) < min(coalesce(var.signal_timeout, 900), coalesce(var.wakeup_timeout, 900))
      error_message = "signal_timeout and wakeup_timeout have to be more than turn_seconds."
    }
  }

  depends_on = [aws_s3_object.function]
}
